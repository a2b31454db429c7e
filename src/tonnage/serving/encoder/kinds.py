"""What kind of model a folder or file is, recognised without loading it, and how each kind is opened."""

from __future__ import annotations

from pathlib import Path

from tonnage.errors import InputError
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.opened import Kind, Opened
from tonnage.serving.encoder.pictures.folders import is_of_pictures, read_pictures
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tables.files import find_table
from tonnage.workload.encoder_terms import Task


def kind_of(path: Path, *, task: Task | None, trust: bool) -> Kind:
    """The kind of a model that can be served. InputError says what is missing, wrong or refused."""
    if find_table(path, trust=trust) is not None:
        return "tables"
    if is_of_pictures(path):
        read_pictures(path, task=task)
        return "images"
    read_folder(path, task=task)
    return "texts"


def open_served(service: EncoderService) -> Opened:
    """Load the model that a service names."""
    kind = kind_of(Path(service.model), task=service.task, trust=service.trust)
    if kind != "texts" and service.calibration is not None:
        raise InputError("texts to calibrate with belong to an encoder of texts", hint="leave --calibrate out")
    if kind == "tables":
        from tonnage.serving.encoder.tables.models import open_table

        return open_table(service)
    if kind == "images":
        from tonnage.serving.encoder.pictures.models import open_pictures

        return open_pictures(service)
    from tonnage.serving.encoder.texts import open_texts

    return open_texts(service)
