"""The same work at several places: the bench file that asks for it, the variation at each place, the differences
between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Name, parse_entries
from tonnage.side_by_side.spread import PlaceDifference, RepeatSpread, place_difference, repeat_spread
from tonnage.values import dataclass
from tonnage.workload.file.fields import Duration, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text
from tonnage.workload.file.yaml_lines import read_yaml

PAGE: Final = "docs/bench-places.md"
KEYS: Final = ("run", "places")
Repeats = Annotated[int, Field(ge=2, le=50), Spelled("whole number, 2 to 50")]
Limit = Annotated[float, Field(gt=0, lt=1), Spelled("fraction above 0 and below 1, such as 0.05")]
Places = Annotated[tuple[Word, ...], BeforeValidator(as_names), Spelled("list of places, such as [local, gpu-box]")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceCell:
    """One run at one place: its rate (samples a second), or why it has none."""

    place: str
    turn: int
    rate_per_s: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceResult:
    """All runs at one place."""

    place: str
    spread: RepeatSpread
    failed: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesCompared:
    """Each place by itself, and every pair of those with two runs or more."""

    places: tuple[PlaceResult, ...]
    differences: tuple[PlaceDifference, ...]


def compare_places(cells: Sequence[PlaceCell], limit: float) -> PlacesCompared:
    """Places in the order they were run; failed runs count for no rate."""
    names = tuple(dict.fromkeys(one.place for one in cells))
    rates = {
        name: [one.rate_per_s for one in cells if one.place == name and one.rate_per_s is not None] for name in names
    }
    found = []
    for name in names:
        reasons = [one.reason for one in cells if one.place == name and one.reason is not None]
        found.append(
            PlaceResult(place=name, spread=repeat_spread(rates[name], limit), failed=len(reasons),
                        reason=reasons[0] if reasons else None)
        )  # fmt: skip
    pairs = (place_difference((one, rates[one]), (other, rates[other]), limit) for one, other in combinations(names, 2))
    return PlacesCompared(places=tuple(found), differences=tuple(one for one in pairs if one is not None))


class PlaceBenchEntry(StrictModel):
    """The section `bench:` of a file that compares places."""

    name: Name = entry("How it is called in the report.")
    run: Word = entry("A workload file with `run:`; the path starts from the bench file.")
    places: Places = entry("Places of places.toml, and `local`: two or more.")
    repeats: Repeats = entry("Runs at each place, in turn.", default=3)
    limit: Limit = entry("The variation and the difference that are to be stayed under.", default=0.05)
    timeout: Duration = entry("A run that takes longer is a failed cell.", default=3600.0, shown="1h")


class PlaceBenchFileEntry(StrictModel):
    """The file."""

    bench: PlaceBenchEntry = entry("The comparison.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceBenchSpec:
    """What such a file asks for. `run`: the workload file."""

    name: str
    run: Path
    places: tuple[str, ...]
    repeats: int
    limit: float
    timeout_s: float


def compares_places(path: Path) -> bool:
    """Whether a file's `bench:` has `run` or `places`. WorkloadError for a file that cannot be read."""
    value = read_yaml(load_text(path), file=str(path)).value
    bench = value.get("bench") if isinstance(value, dict) else None
    return isinstance(bench, dict) and any(key in bench for key in KEYS)


def load_place_bench(path: Path) -> PlaceBenchSpec:
    """The comparison of a file. WorkloadError names line and key of all that cannot be used."""
    entries, document = parse_entries(load_text(path), PlaceBenchFileEntry, file=str(path), page=PAGE)
    bench = entries.bench
    raise_problems(_problems(bench), document)
    return PlaceBenchSpec(
        name=bench.name, run=path.resolve().parent / bench.run, places=bench.places, repeats=bench.repeats,
        limit=bench.limit, timeout_s=bench.timeout,
    )  # fmt: skip


def _problems(bench: PlaceBenchEntry) -> Iterator[Problem]:
    if len(bench.places) < 2:
        yield Problem(("bench", "places"), "names fewer than two", "places: [local, gpu-box]")
    for place in sorted({one for one in bench.places if bench.places.count(one) > 1}):
        yield Problem(("bench", "places"), f"names '{place}' twice", "name each once")
