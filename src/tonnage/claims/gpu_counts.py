"""How many GPUs a text speaks of: the number beside the name of a GPU."""

from __future__ import annotations

import re
from typing import Final

from tonnage.claims.figures import WORDS
from tonnage.claims.names import FoundGpu
from tonnage.values import dataclass

_COUNTED: Final = re.compile(
    rf"(?<![\w.,$-])(?P<count>{'|'.join(WORDS)}|\d{{1,3}})(?:\s*[x×]|-way)?"
    r"(?:[\s-]*(?:GPUs?|cards?)\b\s*(?:of\b(?:\s+type\b)?|[(:,])?)?"
    r"(?:\s*\b\d+\s?Gi?B)?[\s(]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class GpuCount:
    """A number of GPUs, and where it begins in the text."""

    count: float
    start: int


def count_beside(gpu: FoundGpu, text: str) -> GpuCount | None:
    """The number beside a GPU's name: `8x A100`, «eight A100s», «8 GPUs (A100)»; None where there is none."""
    if gpu.count is not None:
        return GpuCount(gpu.count, gpu.start)
    match = _COUNTED.search(text[: gpu.start])
    if match is None:
        return None
    word = match["count"].casefold()
    return GpuCount(float(WORDS.get(word, 0) or word), match.start())
