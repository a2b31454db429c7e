"""What kind of model a folder or file is, recognised without loading it, and how each kind is opened."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from tonnage.errors import InputError
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.calibration import calibrated
from tonnage.serving.encoder.export import digest_of, digest_of_files
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.opened import Kind, Opened
from tonnage.serving.encoder.pictures.folders import is_of_pictures, read_pictures
from tonnage.serving.encoder.runtimes import Model, OnnxModel, open_model
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tables.files import find_table
from tonnage.serving.encoder.tasks import computing
from tonnage.serving.encoder.tokens import TextTokenizer
from tonnage.sizing.encoder_queue import EXAMPLE_TOKENS, SIZES
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

    return open_texts(service)


def open_texts(service: EncoderService) -> Opened:
    """The model of a folder. int8 without texts to calibrate with is computed one text at a time, so that no answer
    depends on others."""
    folder = read_folder(Path(service.model), task=service.task)
    digest = digest_of(folder)
    tokens = TextTokenizer(folder, most_tokens=service.most_tokens)
    alone, change = service.weights == "int8", None
    if service.calibration is None:
        model: Model = open_model(folder, service, Path(service.exports), threads=service.threads)
    else:
        _check_calibration(service)
        graph, found = calibrated(folder, tokens, Path(service.exports), digest, Path(service.calibration))
        model, alone = OnnxModel(graph, threads=service.threads), False
        digest = digest_of_files((graph,))
        change = {key: value for key, value in asdict(found).items() if value is not None}
        print(f"int8 beside fp32: {change}", file=sys.stderr, flush=True)  # noqa: T201
    return Opened(
        kind="texts", folder=folder, digest=digest, runtime=service.runtime, device=model.device, reader=tokens,
        compute=computing(folder, model, padding=tokens.padding),
        example=EncodedText(ids=[1] * min(EXAMPLE_TOKENS, tokens.most_tokens)),
        sizes=SIZES[:1] if alone else SIZES, request_items=service.request_items,
        settings=f"{service.runtime} {tokens.most_tokens}", most_tokens=tokens.most_tokens, change=change,
    )  # fmt: skip


def _check_calibration(service: EncoderService) -> None:
    if service.weights != "int8" or service.runtime != "onnx":
        raise InputError("texts to calibrate with belong to int8 by ONNX Runtime", hint="--dtype int8")
