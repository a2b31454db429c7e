"""Sources of measured inference rows: how each documents that its figures were taken.

One entry a source; each says what it holdss scripts, never what would fit its figures. `with_inference_facts` fills
blank columns of a row with it, once, when the row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tonnage.calibration.rows import InferenceRow

Facts = Mapping[str, Any]
NOTHING: Final[Facts] = MappingProxyType({})
HALF: Final = ("fp16", "bf16")


def with_inference_facts(row: InferenceRow) -> InferenceRow:
    """The row with its blank columns filled from what its source documents."""
    found = documented_facts(row)
    blank = {name: value for name, value in found.items() if not getattr(row, name)}
    return replace(row, **blank) if blank else row


def documented_facts(row: InferenceRow) -> Facts:
    """Column -> value of what the row's source documents; empty for a source that is not known."""
    return next((reader(row) for words, reader in SOURCES if words.search(row.source)), NOTHING)


def _tensorflow_bert(row: InferenceRow) -> Facts:
    """NVIDIA/DeepLearningExamples@729963d, BERT. Both benchmarks compile with XLA: TensorFlow/LanguageModeling/BERT/
    scripts/finetune_inference_benchmark.sh passes `--use_xla`, that of TensorFlow2 `true` for the `use_xla` of
    run_inference_benchmark.sh. 16 bit is automatic mixed precision (`--amp`, `--use_fp16`): weights stay in 32 bit."""
    return {"compiled": "y", "autocast": _answer(row.precision in HALF)}


def _tensorflow_classifiers(row: InferenceRow) -> Facts:
    """The same repository, TensorFlow/Classification/ConvNets: `--amp`, with and without `--xla` as its tables say.
    resnet50v1.5/inference_benchmark.sh names ImageNet (`--data_dir`) and no DALI: runtime/runner.py then decodes its
    photographs on `num_preprocessing_threads = 10`, whatever the host."""
    return {"autocast": _answer(row.precision in HALF), "decoding_threads": 10}


def _pytorch_classifiers(row: InferenceRow) -> Facts:
    """The same repository, PyTorch/Classification/ConvNets/image_classification/training.py: validation runs under
    `torch.cuda.amp.autocast`, entered anew for each batch, so that weights are cast for each."""
    return {"autocast": _answer(row.precision in HALF and row.engine == "pytorch")}


def _answer(yes: bool) -> str:
    return "y" if yes else "n"


_EXAMPLES: Final = r"^NVIDIA/DeepLearningExamples\b.*"
SOURCES: Final[tuple[tuple[re.Pattern[str], Callable[[InferenceRow], Facts]], ...]] = (
    (re.compile(_EXAMPLES + r"\bTF[12] BERT\b"), _tensorflow_bert),
    (re.compile(_EXAMPLES + r"\bTF1 \S*(?:resnet|resnext)"), _tensorflow_classifiers),
    (re.compile(_EXAMPLES + r"\bPyTorch \S*(?:resnet|resnext|efficientnet)\S* README"), _pytorch_classifiers),
)
