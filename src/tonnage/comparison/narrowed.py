"""What hardware and network are worth on the machines that an entry names, rather than on its whole platform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog import Catalog, InstanceType, parse_gpu_filter
from tonnage.comparison.profile_file import Evidence
from tonnage.comparison.profiles import Cell
from tonnage.comparison.request import Alternative

# Least network between machines, Gbit/s, for a score: judgements on the rubric «the fastest links» to «the defaults».
NETWORK_SCORES: Final = ((1600.0, 5), (400.0, 4), (50.0, 3), (0.0, 2))
FAST_GBIT_PER_S: Final = 400.0  # below it a job over many machines waits for its network
ONE_KIND, SOME_KINDS = 2, 3  # scores of hardware where one kind of device, or a few, may be used


def of_its_machines(alternative: Alternative, catalog: Catalog) -> Alternative:
    """The alternative with the scores of the machines that it is narrowed to; as it is where it names none."""
    if not alternative.gpus and not alternative.machines:
        return alternative
    machines = _machines(alternative, catalog)
    cells = dict(alternative.profile.cells)
    made = {"hardware": _hardware(machines), "network": _network(machines), "scalability": _scalability(machines)}
    for key, cell in made.items():
        before = cells.get(key)
        if cell is not None and before is not None:
            cells[key] = _capped(cell, before)
    return replace(alternative, profile=replace(alternative.profile, cells=cells))


def _machines(alternative: Alternative, catalog: Catalog) -> tuple[InstanceType, ...]:
    providers = alternative.providers or alternative.profile.scope.providers
    wanted = [parse_gpu_filter(text) for text in alternative.gpus]
    devices = {device.name for one in wanted for device in catalog.accelerators_matching(one)}
    return tuple(
        one
        for one in catalog.instance_types
        if (not providers or one.provider in providers)
        and (not alternative.machines or any(fnmatchcase(one.name, pattern) for pattern in alternative.machines))
        and (not wanted or one.accelerator in devices)
    )


def _capped(cell: Cell, before: Cell) -> Cell:
    """Never above what the platform as a whole is given: who runs and tunes it has not changed."""
    if cell.score is None or before.score is None:
        return cell
    return replace(cell, score=min(cell.score, before.score))


def _evidence(machines: Sequence[InstanceType]) -> tuple[Evidence, ...]:
    texts = dict.fromkeys((one.source.text, one.source.read_on) for one in machines)
    return tuple(Evidence(title=f"catalog: {text}", url=None, read_on=read_on) for text, read_on in list(texts)[:2])


def _hardware(machines: Sequence[InstanceType]) -> Cell | None:
    if not machines:
        return None
    devices = sorted({one.accelerator or f"{one.cpu_arch} processors" for one in machines})
    most = max(one.accelerator_count for one in machines)
    size = f", up to {most:g} a machine" if most else ""
    kinds = "kind of machine" if len(machines) == 1 else "kinds of machines"
    return Cell(
        value=f"{', '.join(devices)}{size}; {len(machines)} {kinds} in the catalog",
        evidence=_evidence(machines),
        score=ONE_KIND if len(devices) == 1 else SOME_KINDS,
        because="of the machines that this entry is narrowed to",
    )


def _best_link(machines: Sequence[InstanceType]) -> float | None:
    return max((one.network_gbit_per_s for one in machines if one.network_gbit_per_s is not None), default=None)


def _network(machines: Sequence[InstanceType]) -> Cell | None:
    if not machines:
        return None
    best = _best_link(machines)
    if best is None:
        return Cell(value="Not known of these machines", evidence=_evidence(machines))
    return Cell(
        value=f"Up to {best:,g} Gbit/s between these machines",
        evidence=_evidence([one for one in machines if one.network_gbit_per_s == best]),
        score=next(score for least, score in NETWORK_SCORES if best >= least),
        because="of the fastest machine that this entry is narrowed to",
    )


def _scalability(machines: Sequence[InstanceType]) -> Cell | None:
    best = _best_link(machines)
    if best is None or best >= FAST_GBIT_PER_S:
        return None
    return Cell(
        value=f"Some machines before their network of {best:,g} Gbit/s limits one job; services grow further",
        evidence=_evidence([one for one in machines if one.network_gbit_per_s == best]),
        score=3,
        because="no fast interconnect on the machines that this entry is narrowed to",
    )
