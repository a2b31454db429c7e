"""Other tables' names for the devices of accelerators.csv: `H100-80GB-SXM`, `NVIDIA H100 80GB HBM3`, ..."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from importlib.resources import files

from tonnage.values import dataclass

ANY = "any"  # the vocabulary whose names the GPU grammar accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """`alias`, in the words of `vocabulary` (any, skypilot, gpuhunt, nvidia-smi), names `accelerator`."""

    alias: str
    vocabulary: str
    accelerator: str
    source: str


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """A device name with case and the choice of space, underscore or dash taken out.

    >>> fold_name("RTX 6000_Ada")
    'rtx-6000-ada'
    """
    return re.sub(r"[ _-]+", "-", name.strip()).casefold()


@lru_cache(maxsize=1)
def load_aliases() -> tuple[Alias, ...]:
    """Every row of the packaged alias table."""
    table = files("tonnage.catalog") / "data" / "accelerator_aliases.csv"
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    return tuple(Alias(**row) for row in rows)


@lru_cache(maxsize=8)
def _index(vocabulary: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for row in load_aliases():
        if row.vocabulary == vocabulary:
            found.setdefault(fold_name(row.alias), []).append(row.accelerator)
    return {alias: tuple(names) for alias, names in found.items()}


def devices_called(name: str, *, vocabulary: str = ANY) -> tuple[str, ...]:
    """The accelerators that `vocabulary`, or else everyone, calls `name`; several where the name is loose.

    `vocabulary`'s own rows come first: SkyPilot's `A100` is the 40 GB part, whatever others mean by it.
    """
    folded = fold_name(name)
    return _index(vocabulary).get(folded) or _index(ANY).get(folded, ())
