"""What the columns of a table mean, by the words of their headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tonnage.values import dataclass

_BRACKETS: Final = re.compile(r"[(\[].*?[)\]]")
_FORMAT: Final = re.compile(r"\b(fp16|bf16|fp32|int8|int4)\b", re.IGNORECASE)

_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("machine", r"(?:cloud )?(?:instance|machine|vm|droplet|node|server)s?"
                r"(?: (?:types?|family|series|size|name|shape))?"
                r"|(?:vm )?(?:series|sku|size|shape|flavou?r)|types?|names?"),
    ("gpu", r"(?:gpu|accelerator|card)(?: (?:model|type|name))?|gpu/accelerator"),
    ("gpus", r"(?:gpus|# ?(?:of )?gpus?|(?:gpu|accelerator) count|number of gpus|accelerators|num(?:ber)? gpus)"),
    ("vcpus", r"v?cpus?(?: cores| count)?|# ?vcpus?|cores"),
    ("gpu_memory", r"(?:total )?(?:gpu (?:memory|mem|ram|vram)|vram|hbm)(?: size)?"),
    ("memory", r"(?:system |host )?(?:memory|ram|mem)(?: size)?"),
    ("network", r"network(?:ing)?(?: bandwidth| speed| performance)?|net(?:work)? bw"),
    ("bandwidth", r"(?:memory|mem|hbm|vram) (?:bw|bandwidth)|bandwidth"),
    ("count", r"count|qty|quantity|number|#|number of (?:instances|nodes|machines)"
              r"|(?:instance|node|machine) count"),
    ("hours", r"hours?(?: ?/ ?| per | a )?(?:month|mo)?|monthly hours|h/mo(?:nth)?"),
    ("cuda_cores", r"cuda cores?"),
    ("tensor_cores", r"tensor cores?"),
    ("tdp", r"tdp|power|max power"),
    ("parameters", r"(?:#|number of|model )?\s?param(?:eter)?s?(?: count| range)?|model size|size"),
    ("models", r"(?:example |typical |sample )?models?(?: names?| examples?)?|examples?"),
)  # fmt: skip
_PRICE: Final = re.compile(r"\b(?:price|cost|rate|pricing|on[- ]demand|spot)\b|\$|\busd\b", re.IGNORECASE)
_HOURLY: Final = re.compile(
    r"/\s?(?:gpu[\s-])?h(?:r|our)?s?\b|\bper\s+(?:gpu[\s-])?h(?:ou)?r\b|\bgpu[\s-]h(?:ou)?r\b|\bhourly\b", re.IGNORECASE
)
_ON_DEMAND: Final = re.compile(r"\bon[- ]demand\b", re.IGNORECASE)
_PER_GPU: Final = re.compile(r"\bper\s+gpu\b|/\s?gpu\b|\bgpu[\s-]h(?:ou)?r\b", re.IGNORECASE)
_MONTHLY: Final = re.compile(r"/\s?mo(?:nth)?\b|\bper\s+month\b|\bmonthly\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One column: `meaning` is "" where its words are not among those known. `text` is the header in full."""

    meaning: str
    text: str

    @property
    def is_hourly(self) -> bool:
        """Said so, or an on-demand price of no stated unit: those are sold by the hour."""
        return _HOURLY.search(self.text) is not None or (
            _ON_DEMAND.search(self.text) is not None and not self.is_monthly
        )

    @property
    def is_monthly(self) -> bool:
        return _MONTHLY.search(self.text) is not None

    @property
    def is_per_gpu(self) -> bool:
        return _PER_GPU.search(self.text) is not None

    @property
    def is_bare(self) -> bool:
        """Whether it names a time alone (`Monthly`): a price where the cells are amounts of money."""
        return _PRICE.search(self.text) is None

    @property
    def number_format(self) -> str | None:
        """The number format a memory column speaks of (`Memory (FP16)`), in lower case."""
        found = _FORMAT.search(self.text)
        return None if found is None else found[1].casefold()


def read_headers(cells: Sequence[str]) -> tuple[Header, ...]:
    """The meaning of each column.

    >>> [header.meaning for header in read_headers(["Instance Type", "GPUs", "RAM (GB)", "Cost/Hour", "Use Case"])]
    ['machine', 'gpus', 'memory', 'price', '']
    """
    return tuple(Header(meaning=_meaning(cell), text=cell) for cell in cells)


def _meaning(cell: str) -> str:
    words = " ".join(_BRACKETS.sub(" ", cell).replace("_", " ").split()).casefold().strip(": ")
    for meaning, pattern in _WORDS:
        if re.fullmatch(pattern, words):
            return meaning
    return "price" if _PRICE.search(cell) or re.fullmatch(r"monthly|hourly|per month|per hour", words) else ""
