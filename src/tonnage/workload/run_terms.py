"""The words of a run: what is learned or written, from which form of data, started how."""

from __future__ import annotations

from typing import Final, Literal

Task = Literal[
    "sequence-classification", "token-classification", "question-answering", "causal-lm", "sequence-to-sequence",
    "image-classification", "text-generation", "boosted-trees", "mlp", "own",
]  # fmt: skip
NetworkTask = Literal[
    "sequence-classification", "token-classification", "question-answering", "causal-lm", "sequence-to-sequence",
    "image-classification", "own",
]  # fmt: skip
OWN_TASK: Final = "own"  # of an installed package, by the entry point that `run.program` names
DataFormat = Literal["jsonl", "csv", "parquet", "hf", "sql", "images"]  # images: files in a folder for each class
RunnerName = Literal["local", "torchrun", "ray"]
Device = Literal["auto", "cpu", "cuda"]
LearningRateSchedule = Literal["constant", "linear", "cosine"]
TabularObjective = Literal["auto", "regression", "classification"]

ROLES: Final[dict[Task, dict[str, bool]]] = {  # role of a column -> whether the task needs it
    "sequence-classification": {"text": True, "label": True, "text_pair": False},
    "token-classification": {"tokens": True, "tags": True},
    "question-answering": {"question": True, "context": True, "answers": True, "answer_start": False},
    "causal-lm": {"text": True, "prompt": False},
    "sequence-to-sequence": {"source": True, "target": True},
    "image-classification": {"image": True, "label": True},
    "text-generation": {"prompt": True},
    "boosted-trees": {"label": True},
    "mlp": {"label": True},
    "own": {},  # whatever the program reads
}
FIGURES: Final[dict[Task, tuple[str, ...]]] = {  # of an evaluation, the first of them says which is the best
    "sequence-classification": ("accuracy", "macro_f1"),
    "token-classification": ("accuracy", "precision", "recall", "f1"),  # all but the first for entity tags only
    "question-answering": ("exact_match", "f1"),
    "causal-lm": ("loss_per_token", "perplexity"),
    "sequence-to-sequence": ("rouge_l", "exact_match", "loss_per_token", "perplexity"),
    "image-classification": ("accuracy", "macro_f1"),
    "mlp": ("accuracy", "macro_f1", "auc", "rmse", "mae"),  # by the objective
}  # an own task has its own
_LOWER: Final = ("loss", "perplexity", "rmse", "mae", "error")  # in the name of a figure: less is better
ONE_PROCESS: Final[tuple[Task, ...]] = ("boosted-trees", "text-generation")  # no training loop to share out
SUFFIXES: Final[dict[str, DataFormat]] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".png": "images", ".jpg": "images", ".jpeg": "images", ".webp": "images", ".bmp": "images", ".gif": "images",
}  # fmt: skip


def less_is_better(figure: str) -> bool:
    """Whether the lower value of a figure is the better one, by its name.

    >>> less_is_better("loss_per_token"), less_is_better("macro_f1")
    (True, False)
    """
    return any(word in figure for word in _LOWER)


def format_of(location: str) -> DataFormat | None:
    """The format a location's name tells, or None.

    >>> format_of("rows/part-*.jsonl.gz"), format_of("hf://org/reviews"), format_of("rows.xlsx")
    ('jsonl', 'hf', None)
    >>> format_of("images/*/*.png")
    'images'
    """
    if location.startswith("hf://"):
        return "hf"
    name = location.partition("?")[0].casefold() if "://" in location else location.casefold()
    return next((form for suffix, form in SUFFIXES.items() if name.removesuffix(".gz").endswith(suffix)), None)
