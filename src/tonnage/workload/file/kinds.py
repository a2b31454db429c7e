"""The workload file as pydantic reads it: one model per kind, distinguished by `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag

from tonnage.workload.file.fields import Section, Spelled, Word, key
from tonnage.workload.file.inline_shape import InlineShape
from tonnage.workload.file.job_fields import (
    BatchFields,
    DataFields,
    RequestFields,
    ServeFields,
    TabularFields,
    TrainFields,
)
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.file.run_fields import GenerateRunFields, TableRunFields, TrainRunFields
from tonnage.workload.file.sweep_fields import SweepFields
from tonnage.workload.file.terms_fields import SharedFields
from tonnage.workload.host import HostTerms


def _model_form(value: Any) -> str:
    return "shape" if isinstance(value, (Mapping, InlineShape)) else "text"


ModelReference = Annotated[
    Annotated[Word, Tag("text")] | Annotated[InlineShape, Tag("shape")],
    Discriminator(_model_form),
    Spelled("name, path, `hf://org/name`, or mapping"),
]
_MODEL_MEANING = (
    "A known model's name; a path, from this file, to a Hugging Face `config.json` or its folder; "
    "`hf://org/name`; or the shape itself (see Inline shape)."
)


class TrainFile(SharedFields):
    """Pre-training or fine-tuning a neural network."""

    kind: Literal["train"] = key("What is to be done.", example="train")
    model: ModelReference = key(_MODEL_MEANING, example="bert-base-uncased")
    data: DataFields = key("What one pass over the data holds.")
    train: Section[TrainFields] = key("How to train.", default=TrainFields, shown="its defaults")
    layout: Section[TrainLayoutFields] = key(
        "How the work is spread, where it is fixed.", default=TrainLayoutFields, shown="chosen"
    )
    host: Section[HostTerms] = key("What the host does for each item.", default=HostTerms, shown="its defaults")
    run: Section[TrainRunFields] | None = key("How `tonnage run` carries it out.", default=None, shown="not to be run")
    sweep: Section[SweepFields] | None = key(
        "What `tonnage sweep` tries, by the best of which figure.", default=None, shown="none"
    )


class ServeFile(SharedFields):
    """Answering requests as they arrive, each within a promised time."""

    kind: Literal["serve"] = key("What is to be done.", example="serve")
    model: ModelReference = key(_MODEL_MEANING, example="gpt2")
    serve: ServeFields = key("What arrives, and what is promised.")
    layout: Section[ServingLayoutFields] = key(
        "How the work is spread, where it is fixed.", default=ServingLayoutFields, shown="chosen"
    )
    host: Section[HostTerms] = key("What the host does for each item.", default=HostTerms, shown="its defaults")


class BatchFile(SharedFields):
    """Answering many requests by a deadline, however long each takes."""

    kind: Literal["batch"] = key("What is to be done.", example="batch")
    model: ModelReference = key(_MODEL_MEANING, example="gpt-j-6b")
    batch: BatchFields = key("What is to be answered.")
    layout: Section[ServingLayoutFields] = key(
        "How the work is spread, where it is fixed.", default=ServingLayoutFields, shown="chosen"
    )
    host: Section[HostTerms] = key("What the host does for each item.", default=HostTerms, shown="its defaults")
    run: Section[GenerateRunFields] | None = key(
        "How `tonnage run` carries it out.", default=None, shown="not to be run"
    )


class TabularFile(SharedFields):
    """Learning from a table: boosted trees or a multi-layer perceptron."""

    kind: Literal["tabular"] = key("What is to be done.", example="tabular")
    tabular: TabularFields = key("The table, and what is learned from it.")
    run: Section[TableRunFields] | None = key("How `tonnage run` carries it out.", default=None, shown="not to be run")
    sweep: Section[SweepFields] | None = key(
        "What `tonnage sweep` tries, by the best of which figure.", default=None, shown="none"
    )


WorkloadFile = TrainFile | ServeFile | BatchFile | TabularFile
KINDS: Final[Mapping[str, type[WorkloadFile]]] = {
    "train": TrainFile,
    "serve": ServeFile,
    "batch": BatchFile,
    "tabular": TabularFile,
}


def requests_of(file: WorkloadFile) -> RequestFields | None:
    """What a service or a batch asks for; None for other kinds."""
    if isinstance(file, ServeFile):
        return file.serve
    return file.batch if isinstance(file, BatchFile) else None
