"""Sizes of organisations and what each usually weighs more or less. Data, not code."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Final

from pydantic import Field

from tonnage.comparison.user_files import Name, Named, Text, parse_entries
from tonnage.values import dataclass
from tonnage.workload.file.fields import Count, StrictModel

USUAL: Final = "mid-size"  # whose factors are all 1: taken where the size is not said


class Size(StrictModel):
    """A size of organisation and what it usually weighs more or less."""

    name: Name
    title: Text
    from_employees: Count
    factors: dict[Name, Annotated[float, Field(ge=0, le=10)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTable:
    source: str
    sizes: tuple[Size, ...]

    def of(self, employees: int | None) -> Size | None:
        """The size that many people make; None where it is not said."""
        if employees is None:
            return None
        return max((one for one in self.sizes if one.from_employees <= employees), key=lambda one: one.from_employees)


class SizesFile(StrictModel):
    source: Text
    organisations: Named[Size]


@lru_cache(maxsize=1)
def load_sizes() -> SizeTable:
    """The packaged sizes, smallest first."""
    text = files("tonnage.comparison").joinpath("data/organisations.yaml").read_text("utf-8")
    entries, _ = parse_entries(text, SizesFile, file="organisations.yaml", page="docs/compare.md")
    smallest_first = sorted(entries.organisations.values(), key=lambda one: one.from_employees)
    return SizeTable(source=entries.source, sizes=tuple(smallest_first))
