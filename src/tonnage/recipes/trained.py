"""The finished model of a run, ready to be asked: weights or adapters, tokenizer, labels, device and precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import InputError
from tonnage.features.tables import TableCoder
from tonnage.recipes.data.images import Pixels, pixels_of
from tonnage.recipes.precision import Precision, choose_device, choose_precision, set_matmul
from tonnage.recipes.tasks.labels import Labels, trained_labels
from tonnage.recipes.tasks.models import IMAGES, load_tokenizer, load_trained, longest_input
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import observed_state
from tonnage.runs.spec import Device, RunSpec, Task
from tonnage.runs.states import RunStatus
from tonnage.values import dataclass
from tonnage.workload.run_terms import OWN_TASK

if TYPE_CHECKING:
    from torch.nn import Module

CLASSES: Final[dict[Task, str]] = {  # of transformers
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "causal-lm": "AutoModelForCausalLM",
    "sequence-to-sequence": "AutoModelForSeq2SeqLM",
    "image-classification": IMAGES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """A transformer that a run has finished, on its device, in evaluation mode."""

    spec: RunSpec
    model: Any
    tokenizer: Any
    longest: int  # tokens of an input; 0 for images
    device: Literal["cpu", "cuda"]
    precision: Precision
    pixels: Pixels | None = None  # what a model of images sees

    @property
    def labels(self) -> Labels:
        return trained_labels(self.model)

    def arithmetic(self) -> AbstractContextManager[Any]:
        """What it computes in: that of its training, where the device has it."""
        import torch

        if self.precision not in ("bf16", "fp16"):
            return nullcontext()
        return torch.autocast(self.device, torch.bfloat16 if self.precision == "bf16" else torch.float16)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTable:
    """Trees or a network over a table that a run has finished, and how rows become its numbers."""

    spec: RunSpec
    coder: TableCoder
    booster: Any = None
    network: Module | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Precision = "fp32"

    def arithmetic(self) -> AbstractContextManager[Any]:
        return nullcontext()


Trained = TrainedModel | TrainedTable


def finished_folder(folder: RunFolder) -> Path:
    """Where a run's finished model is. InputError where the run has not ended well, or leaves no model."""
    name, state, spec = folder.path.name, observed_state(folder).state, folder.spec()
    if spec.task == "text-generation":
        raise InputError(
            f"'{name}' writes text and trains no model", hint=f"its texts: {folder.path / 'generated.jsonl'}"
        )
    if spec.task == OWN_TASK:
        raise InputError(
            f"'{name}' is of an own task ({spec.program}): only its program knows how its model is asked",
            hint=f"the model: {folder.model}",
        )
    if state is not RunStatus.SUCCEEDED:
        then = f"`tonnage resume {name}` goes on with it" if state.ended else f"`tonnage logs -f {name}` follows it"
        raise InputError(f"'{name}' has no finished model: it is {state.value}", hint=then)
    if not folder.model.is_dir():
        raise InputError(f"'{name}' has ended, but its model is gone: {folder.model}", hint="train it again")
    return folder.model


def load_finished(folder: RunFolder, *, device: Device = "auto", spec: RunSpec | None = None) -> Trained:
    """The finished model of a run. `spec`: its own, or that with other columns."""
    place = finished_folder(folder)
    spec = spec or folder.spec()
    if spec.task in CLASSES:
        return _load_model(spec, place, choose_device(device))
    coder = TableCoder.load(place)
    if spec.task == "boosted-trees":
        from tonnage.recipes.tasks.boosted_trees import answering_device, load_booster

        booster, kind = load_booster(place), answering_device(device)
        booster.set_param({"device": kind})
        return TrainedTable(spec=spec, coder=coder, booster=booster, device=kind)
    from tonnage.recipes.tasks.mlp import load_network

    kind = choose_device(device)
    return TrainedTable(spec=spec, coder=coder, network=load_network(place).to(kind).eval(), device=kind)


def _load_model(spec: RunSpec, place: Path, kind: Literal["cpu", "cuda"]) -> TrainedModel:
    precision = _precision(spec, kind)
    set_matmul(precision)
    if spec.task == "image-classification":
        return _load_images(spec, place, kind, precision)
    beside = replace(spec, tokenizer=str(place))
    tokenizer = load_tokenizer(beside, words=spec.task == "token-classification")
    if spec.task == "question-answering":
        tokenizer.padding_side = "right"
    model = load_trained(spec, place, CLASSES[spec.task], padding=tokenizer.pad_token_id)
    if getattr(model, "hf_device_map", None) is None:
        model = model.to(kind)
    return TrainedModel(
        spec=spec,
        model=model.eval(),
        tokenizer=tokenizer,
        longest=longest_input(spec, tokenizer, model),
        device=kind,
        precision=precision,
    )


def _load_images(spec: RunSpec, place: Path, kind: Literal["cpu", "cuda"], precision: Precision) -> TrainedModel:
    model = load_trained(spec, place, IMAGES, padding=None)
    if getattr(model, "hf_device_map", None) is None:
        model = model.to(kind)
    pixels = pixels_of(model.config, str(place))
    return TrainedModel(
        spec=spec, model=model.eval(), tokenizer=None, longest=0, device=kind, precision=precision, pixels=pixels
    )


def _precision(spec: RunSpec, kind: Literal["cpu", "cuda"]) -> Precision:
    """That of the training; what this device would choose, where it is another than that of the training."""
    asked = spec.training.precision
    return choose_precision("auto" if kind == "cpu" and asked in ("fp16", "tf32") else asked, kind)
