"""Constraints given beside a workload file: each replaces the file's own, checked against the catalog."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from tonnage.catalog import Catalog, parse_gpu_filter
from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import Platform
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.workload.durations import parse_deadline
from tonnage.workload.exclusions import Exclusion, parse_exclusion
from tonnage.workload.jobs import Constraints, Risk, Trust, Workload
from tonnage.workload.quota_files import load_quotas
from tonnage.workload.quotas import Quota

NAMES = (
    "providers", "regions", "residency", "gpus", "deadline", "budget_usd", "interruptible", "max_gpus", "max_nodes",
    "hold", "platforms", "accept_risk", "trust", "exclude", "quotas",
)  # fmt: skip


def override_constraints(workload: Workload, catalog: Catalog, **given: Any) -> Workload:
    """`workload` with each constraint that is given (not None, not empty) in place of its own.

    Raises InputError on an unknown keyword or value.
    """
    for name in given:
        if name not in NAMES:
            hint = did_you_mean(nearest(name, NAMES, count=1), f"known: {', '.join(NAMES)}")
            raise InputError(f"no constraint is named '{name}'", hint=hint)
    wanted = {name: value for name, value in given.items() if value is not None and value != () and value != []}
    changed: dict[str, Any] = {name: _READERS[name](value, workload, catalog) for name, value in wanted.items()}
    if "deadline" in changed:
        changed["deadline_s"] = changed.pop("deadline")
    assert set(changed) <= {field.name for field in fields(Constraints)}
    workload = replace(workload, constraints=replace(workload.constraints, **changed))
    return _without_spot(workload) if changed.get("interruptible") is False else workload


def parse_override_gpus(gpus: str | Sequence[str], catalog: Catalog) -> tuple[GpuFilter, ...]:
    """GPU filters that each match some device; UnknownAccelerator or InputError else."""
    filters = tuple(parse_gpu_filter(text) for text in _texts(gpus))
    for wanted in filters:
        if not catalog.accelerators_matching(wanted):
            raise InputError(f"'{wanted.text}' matches no GPU known here", hint="`tonnage catalog gpus` lists them all")
    return filters


def _without_spot(workload: Workload) -> Workload:
    purchases = tuple(purchase for purchase in workload.buy.purchases if purchase != "spot")
    if not purchases:
        raise InputError("not interruptible, but the workload is to be bought as spot only", hint="allow on_demand")
    return replace(workload, buy=replace(workload.buy, purchases=purchases))


def _texts(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _known(values: str | Iterable[str], known: Iterable[str], what: str) -> tuple[str, ...]:
    by_folded = {name.casefold(): name for name in known}
    for value in (texts := _texts(values)):
        if value.casefold() not in by_folded:
            few = ", ".join(by_folded.values())
            otherwise = f"known: {few}" if len(by_folded) < 20 else f"{len(by_folded)} are known"
            hint = did_you_mean(nearest(value, by_folded.values()), otherwise)
            raise InputError(f"no {what} named '{value}' in the catalog", hint=hint)
    return tuple(by_folded[value.casefold()] for value in texts)


def known_providers(names: str | Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """The providers as the catalog spells them; InputError, with the nearest, on one it does not have."""
    return _known(names, [provider.name for provider in catalog.providers], "provider")


def _providers(value: Any, _: Workload, catalog: Catalog) -> tuple[str, ...]:
    return known_providers(value, catalog)


def _platforms(value: Any, _: Workload, __: Catalog) -> tuple[str, ...]:
    return _known(value, get_args(Platform), "platform")


def _regions(value: Any, _: Workload, catalog: Catalog) -> tuple[str, ...]:
    sold = {offer.region for offer in catalog.offers if offer.region}
    return _known(value, sorted(sold | {region.name for region in catalog.regions}), "region")


def _residency(value: Any, _: Workload, catalog: Catalog) -> tuple[str, ...]:
    return _known(value, sorted({region.area for region in catalog.regions}), "area")


def _gpus(value: Any, _: Workload, catalog: Catalog) -> tuple[GpuFilter, ...]:
    return parse_override_gpus(value, catalog)


def _deadline_s(value: Any, workload: Workload, _: Catalog) -> float:
    if workload.is_service:
        raise InputError("a service runs on and has no deadline", hint="its speed is `serve.p95_latency`")
    try:
        seconds = parse_deadline(str(value)).seconds_from(workload.as_of)
    except ValueError as error:
        raise InputError(f"deadline: found '{value}', {error}") from None
    if seconds <= 0:
        raise InputError(f"deadline: found '{value}', which has passed", hint="a duration such as 24h counts from now")
    return seconds


def _budget_usd(value: Any, _: Workload, __: Catalog) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InputError(f"budget: found {value!r}, expected US dollars above zero", hint="such as 250")
    return float(value)


def _count(value: Any, _: Workload, __: Catalog) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"found {value!r}, expected a whole number of at least 1")
    return value


def _switch(value: Any, _: Workload, __: Catalog) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"found {value!r}, expected True or False")
    return value


def _accept_risk(value: Any, workload: Workload, _: Catalog) -> tuple[Risk, ...]:
    known = get_args(Risk)
    for text in _texts(value):
        if text not in known:
            hint = did_you_mean(nearest(text, known, count=1), f"one of {', '.join(known)}")
            raise InputError(f"no risk is named '{text}'", hint=hint)
    return tuple(dict.fromkeys((*workload.constraints.accept_risk, *_texts(value))))  # type: ignore[arg-type]


def _trust(value: Any, _: Workload, __: Catalog) -> Trust:
    if value not in get_args(Trust):
        raise InputError(f"trust: found {value!r}, expected dated or any", hint="dated: prices one can rely on win")
    return value  # type: ignore[no-any-return]


def _exclude(value: Any, workload: Workload, catalog: Catalog) -> tuple[Exclusion, ...]:
    """Beside what the file excludes."""
    given = tuple(parse_exclusion(text, catalog) for text in _texts(value))
    return tuple(dict.fromkeys((*workload.constraints.exclude, *given)))


def _quotas(value: Any, workload: Workload, catalog: Catalog) -> tuple[Quota, ...]:
    """Beside what the file states: files of a quota API, FILE or FILE@REGION."""
    given = [quota for text in _texts(value) for quota in load_quotas(Path(text.partition("@")[0]), catalog,
                                                                      region=text.partition("@")[2])]  # fmt: skip
    return (*workload.constraints.quotas, *given)


_READERS: dict[str, Callable[[Any, Workload, Catalog], Any]] = {
    "providers": _providers,
    "regions": _regions,
    "residency": _residency,
    "gpus": _gpus,
    "deadline": _deadline_s,
    "budget_usd": _budget_usd,
    "max_gpus": _count,
    "max_nodes": _count,
    "interruptible": _switch,
    "hold": _switch,
    "platforms": _platforms,
    "accept_risk": _accept_risk,
    "trust": _trust,
    "exclude": _exclude,
    "quotas": _quotas,
}
