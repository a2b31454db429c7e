"""A model's folder: what task its head was made for, how its embeddings are pooled, what its labels are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Task

Pooling = Literal["mean", "cls", "max"]
WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json", "model.onnx", "adapter_model.safetensors")
PICKLES: Final = ("pytorch_model.bin", "model.pt", "model.pkl")
_ADAPTED: Final[dict[str, Task]] = {  # peft's TaskType
    "SEQ_CLS": "classification", "TOKEN_CLS": "token-classification", "QUESTION_ANS": "question-answering",
    "FEATURE_EXTRACTION": "embedding",
}  # fmt: skip
_HEADS: Final[tuple[tuple[str, Task], ...]] = (
    ("ForSequenceClassification", "classification"), ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A checked folder. `most_tokens`: what its positions hold, special tokens included."""

    path: Path
    task: Task
    most_tokens: int
    labels: tuple[str, ...]
    pooling: Pooling
    normalised: bool  # its embeddings have length 1
    head: Task  # what its weights were saved for: the class that reads them
    base: str | None = None  # of adapters: the model they were trained on


def read_folder(path: Path, *, task: Task | None = None) -> ModelFolder:
    """The folder as Hugging Face's `save_pretrained` writes it. InputError names what is missing or refused."""
    if not path.is_dir():
        raise InputError(
            f"{path} is not a folder of a model", hint="name a folder that save_pretrained wrote, or a run"
        )
    config = read_json(path / "config.json")
    if config is None:
        raise InputError(f"{path} has no config.json", hint="it is no model's folder")
    check_weights(path)
    if not (path / "tokenizer.json").is_file():
        raise InputError(f"{path} has no tokenizer.json", hint="save the fast tokenizer beside the model")
    labels = labels_of(config)
    adapters = read_json(path / "adapter_config.json") or {}
    found = _task_of(config, labels, str(adapters.get("task_type")), task)
    _check_task(path, asked=task, found=found)
    pooling, normalised = _pooling(path)
    return ModelFolder(
        path=path, task=task or found, most_tokens=_most_tokens(path, config), labels=labels, pooling=pooling,
        normalised=normalised, head=found,
        base=adapters.get("base_model_name_or_path"),
    )  # fmt: skip


def read_json(path: Path) -> Any:
    """What a file holds; None where there is none. InputError for invalid JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def check_weights(path: Path) -> None:
    """InputError for a folder without weights, or with a pickle of them."""
    if any((path / name).is_file() for name in WEIGHTS):
        return
    pickle = next((name for name in PICKLES if (path / name).is_file()), None)
    if pickle is None:
        raise InputError(f"{path} has no weights: none of {', '.join(WEIGHTS)}")
    raise InputError(f"{path / pickle} is a pickle, which can run any program when it is read",
                     hint="save it as safetensors: model.save_pretrained(FOLDER)")  # fmt: skip


def labels_of(config: Any) -> tuple[str, ...]:
    """The names of the classes, in the order of their numbers."""
    named = config.get("id2label") or {}
    return tuple(str(named[key]) for key in sorted(named, key=int))


def _task_of(config: Any, labels: tuple[str, ...], adapted: str, asked: Task | None) -> Task:
    """By the head that the weights were saved with; of adapters by what they say, else as asked, since the
    configuration beside them is their base's. Without a head, embeddings."""
    if adapted in _ADAPTED:
        return "reranking" if _ADAPTED[adapted] == "classification" and len(labels) == 1 else _ADAPTED[adapted]
    if adapted != "None" or config.get("architectures") is None:
        return asked or "embedding"
    for name in config.get("architectures") or ():
        for ending, task in _HEADS:
            if str(name).endswith(ending):
                return "reranking" if task == "classification" and len(labels) == 1 else task
    return "embedding"


def _check_task(path: Path, *, asked: Task | None, found: Task) -> None:
    heads = {"classification", "reranking"}
    if asked in (None, found, "embedding") or {asked, found} <= heads:
        return
    raise InputError(f"{path} was trained for {found}, not {asked}: it has no such head",
                     hint=f"--task {found}, or fine-tune it for {asked}")  # fmt: skip


def _most_tokens(path: Path, config: Any) -> int:
    """What positions hold, or the tokenizer's limit where that is less; RoBERTa's first two positions are padding's."""
    positions = int(config.get("max_position_embeddings") or 512)
    positions -= 2 if config.get("model_type") in ("roberta", "xlm-roberta", "camembert") else 0
    said = (read_json(path / "tokenizer_config.json") or {}).get("model_max_length")
    return min(positions, said) if isinstance(said, int) and said > 0 else positions


def _pooling(path: Path) -> tuple[Pooling, bool]:
    """As sentence-transformers saves it: `modules.json`, `1_Pooling/config.json`; else the mean, as they are."""
    modules = read_json(path / "modules.json") or []
    normalised = any(str(one.get("type", "")).endswith("Normalize") for one in modules)
    said = read_json(path / "1_Pooling" / "config.json") or {}
    if said.get("pooling_mode_cls_token"):
        return "cls", normalised
    return "max" if said.get("pooling_mode_max_tokens") else "mean", normalised
