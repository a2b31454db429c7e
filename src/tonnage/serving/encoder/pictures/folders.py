"""A model of pictures in a folder: what it was made for, and how it sees a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.features.pixels import SETTINGS, View, read_view
from tonnage.serving.encoder.folders import check_weights, labels_of, read_json
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Task

CLASSES: Final = "ForImageClassification"
WHOLE: Final = "processor_config.json"  # of models of texts and pictures; it holds the settings of both
_OF_TEXTS: Final = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "CausalLM", "MaskedLM")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFolder:
    """A checked folder; `view`: how it sees a picture; `head`: what its weights were saved for."""

    path: Path
    task: Task
    labels: tuple[str, ...]
    view: View
    head: Task
    base: str | None = None  # of adapters: the model they were trained on


def is_of_pictures(path: Path) -> bool:
    """Whether the model in a folder takes pictures alone, or gives vectors of them."""
    config = read_json(path / "config.json") or {}
    names = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith(CLASSES) for name in names):
        return True
    return _settings(path) is not None and not any(name.endswith(_OF_TEXTS) for name in names)


def read_pictures(path: Path, *, task: Task | None) -> PictureFolder:
    """The folder as `save_pretrained` writes it. InputError names what is missing, refused or not known here."""
    config = read_json(path / "config.json") or {}
    check_weights(path)
    head: Task = "image-embedding"
    if any(str(name).endswith(CLASSES) for name in config.get("architectures") or ()):
        head = "image-classification"
    if task not in (None, head, "image-embedding"):
        raise InputError(f"{path} is for {head}, not {task}", hint=f"--task {head}, or leave it out")
    said = _settings(path)
    if said is None:
        raise InputError(f"{path} has no {SETTINGS}: how it sees a picture is not known",
                         hint="save the image processor beside the model")  # fmt: skip
    chosen = task or head
    labels = labels_of(config) if chosen == "image-classification" else ()
    base = (read_json(path / "adapter_config.json") or {}).get("base_model_name_or_path")
    return PictureFolder(path=path, task=chosen, labels=labels, view=read_view(said), head=head, base=base)


def _settings(path: Path) -> Any:
    said = read_json(path / SETTINGS)
    if said is None:
        said = (read_json(path / WHOLE) or {}).get("image_processor")
    kinds = ("image_processor_type", "feature_extractor_type")
    return said if said is not None and any("Image" in str(said.get(key, "")) or "FeatureExtractor" in
                                            str(said.get(key, "")) for key in kinds) else None  # fmt: skip
