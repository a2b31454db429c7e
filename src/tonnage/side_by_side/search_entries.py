"""`search` of a bench file and of its engines -> terms and spaces; what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tonnage.errors import did_you_mean, nearest
from tonnage.side_by_side.entries import BenchEntry, EngineEntry, SearchEntry
from tonnage.side_by_side.spaces import NATIVE, usual_space
from tonnage.side_by_side.spec import Family, SearchTerms, family_of
from tonnage.trials.parameters import TrialParameter, read_parameter
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.sweep_checks import is_whole, values_problems
from tonnage.workload.file.sweep_fields import ParameterFields
from tonnage.workload.file.yaml_lines import KeyPath

BUDGETS: Final = ("trials", "time", "cost_usd")
SEARCHABLE: Final[Mapping[Family, tuple[str, ...]]] = MappingProxyType({
    "trees": ("rounds", "depth", "bins", "learning_rate"), "mlp": ("epochs", "hidden", "batch", "learning_rate"),
    "automl": (),
})  # fmt: skip


def terms_of(asked: SearchEntry) -> SearchTerms:
    return SearchTerms(
        trials=asked.trials, work_s=asked.time, usd=asked.cost_usd, sampler=asked.sampler, seed=asked.seed,
        validation_fraction=asked.validation,
    )  # fmt: skip


def space_of(engine: EngineEntry) -> tuple[TrialParameter, ...]:
    """What a search may change at the engine: what it says, else the usual less what it states; at scaling nothing,
    since all its points do the same work."""
    if engine.scaling is not None:
        return ()
    if engine.search is None:
        stated = {key for key in engine.model_fields_set if getattr(engine, key) is not None}
        return usual_space(engine.engine, frozenset(stated | {f"{NATIVE}{key}" for key in engine.native}))
    return tuple(read_parameter(path, fields, whole=_whole(path, fields)) for path, fields in engine.search.items())


def _whole(path: str, fields: ParameterFields) -> bool:
    """Keys of the file say so themselves; of an engine's own name the ends of the range do."""
    if path.startswith(NATIVE):
        return isinstance(fields.low, int) and isinstance(fields.high, int) and not fields.log
    return is_whole(EngineEntry, path)


def search_problems(bench: BenchEntry) -> Iterator[Problem]:
    """What is wrong with the section itself."""
    asked, here = bench.search, ("bench", "search")
    assert asked is not None
    if sum(getattr(asked, name) is not None for name in BUDGETS) != 1:
        yield Problem(here, "has no budget, or two", f"one of {', '.join(BUDGETS)}: the same for every engine")
    if asked.cost_usd is not None and bench.price is None:
        yield Problem((*here, "cost_usd"), "needs the price of the machine", "price: {usd_per_hour: 0.096}")


def space_problems(here: KeyPath, engine: EngineEntry, asked: SearchEntry | None) -> Iterator[Problem]:
    """What is wrong with `search` of one engine."""
    if engine.search is None:
        return
    at = (*here, "search")
    if asked is None:
        yield Problem(at, "has no budget: `bench.search` is missing", "bench: {search: {trials: 20}}")
    if engine.scaling is not None:
        yield Problem(at, "all points of `scaling` do the same work", "leave one of the two out")
    known = SEARCHABLE[family_of(engine.engine)]
    if not known:
        yield Problem(at, f"{engine.engine} searches by itself, within the same budget", "leave it out")
        return
    for path, fields in engine.search.items():
        yield from values_problems((*at, path), fields)
        native = path.startswith(NATIVE) and path != NATIVE
        if not native and path not in known:
            listed = f"one of {', '.join(known)}, or native.NAME of the engine"
            yield Problem((*at, path), f"{engine.engine} has no such parameter to search",
                          did_you_mean(nearest(path, known, count=1), listed))  # fmt: skip
            continue
        held = engine.native if native else engine.model_dump(exclude_none=True, exclude_defaults=True)
        if path.removeprefix(NATIVE) in held:
            yield Problem((*at, path), "is stated at the engine too", "leave one of the two out")
        if not native:
            yield from _unusable((*at, path), path, fields)


def _unusable(at: KeyPath, path: str, fields: ParameterFields) -> Iterator[Problem]:
    """Choices, and ends of a range, that the key itself would refuse."""
    kind: Any = EngineEntry.model_fields[path].annotation
    check = TypeAdapter[Any](kind)
    values = fields.choices if fields.choices is not None else (fields.low, fields.high)
    for value in values:
        try:
            check.validate_python(value)
        except ValidationError as error:
            yield Problem(at, f"{value!r} cannot be used: {error.errors()[0]['msg']}", "a value that the key takes")
