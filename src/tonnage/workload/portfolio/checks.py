"""What cannot hold in a portfolio file, found before any planning."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.workload.file.problems import Problem, shorten
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.portfolio.fields import CommitmentFields, PortfolioFile
from tonnage.workload.portfolio.freezing import reserved_usd_per_gpu_hour

SUM_TOLERANCE = 1e-6


def find_portfolio_problems(file: PortfolioFile, catalog: Catalog) -> Iterator[Problem]:
    """Every fault of shares, capacity limits and commitments."""
    providers = [provider.name for provider in catalog.providers]
    regions = {offer.region for offer in catalog.offers if offer.region} | {one.name for one in catalog.regions}
    yield from _share_problems(file, providers)
    for place, limit in enumerate(file.capacity):
        path: KeyPath = ("capacity", place)
        yield from _unknown((*path, "provider"), limit.provider, providers, "provider")
        yield from _unknown((*path, "region"), limit.region, regions, "region")
        yield from _gpu_problems((*path, "gpu"), limit.gpu, catalog)
    for place, commitment in enumerate(file.reserved):
        path = ("reserved", place)
        yield from _unknown((*path, "provider"), commitment.provider, providers, "provider")
        yield from _unknown((*path, "region"), commitment.region, regions, "region")
        yield from _commitment_problems(path, commitment, catalog)


def _share_problems(file: PortfolioFile, providers: Collection[str]) -> Iterator[Problem]:
    for name in file.shares:
        yield from _unknown(("shares", name), name, providers, "provider")
    if not file.shares:
        return
    total = math.fsum(file.shares.values())
    if not any(math.isclose(total, whole, abs_tol=SUM_TOLERANCE * whole) for whole in (1.0, 100.0)):
        listed = " + ".join(f"{share:g}" for share in file.shares.values())
        hint = "shares are parts of the whole spend; the last one is often what the others leave"
        yield Problem(("shares",), f"{listed} = {total:g}, expected a sum of 100 (or of 1)", hint)


def _unknown(path: KeyPath, name: str | None, known: Collection[str], what: str) -> Iterator[Problem]:
    if name is None or name in known:
        return
    listed = f"known: {', '.join(sorted(known))}" if len(known) < 20 else f"{len(known)} are known"
    hint = did_you_mean(nearest(name, known, count=1), listed)
    yield Problem(path, f"found {shorten(name)}, which is no {what} known here", hint)


def _gpu_problems(path: KeyPath, text: str, catalog: Catalog) -> Iterator[Problem]:
    try:
        wanted = parse_gpu_filter(text)
        if wanted.states_count:
            yield Problem(path, f"found {shorten(text)}: the count belongs elsewhere", "name the GPU alone")
        elif not catalog.accelerators_matching(wanted):
            yield Problem(path, f"found {shorten(text)}, which matches no GPU known here", "`tonnage catalog gpus`")
    except InputError as error:
        yield Problem(path, error.message, error.hint)


def _commitment_problems(path: KeyPath, one: CommitmentFields, catalog: Catalog) -> Iterator[Problem]:
    if one.gpu is None and one.instance_type is None:
        yield Problem(path, "names neither `gpu` nor `instance_type`", "for example `gpu: A100-80GB`")
    if one.gpu is not None:
        yield from _gpu_problems((*path, "gpu"), one.gpu, catalog)
    if one.instance_type is not None:
        try:
            instance = catalog.instance_type(one.instance_type, one.provider)
        except InputError as error:
            yield Problem((*path, "instance_type"), error.message, error.hint)
            return
        if instance.accelerator is None:
            yield Problem((*path, "instance_type"), f"{instance.name} has no GPU", "commitments are for GPU-hours")
            return
    if one.up_to_gpus is not None and one.up_to_gpus < one.gpus:
        yield Problem((*path, "up_to_gpus"), f"found {one.up_to_gpus}, below `gpus` ({one.gpus})", "it counts them in")
    if one.gpus == 0 and not one.up_to_gpus:
        yield Problem(path, "commits nothing", "`gpus` are committed already, `up_to_gpus` may be")
    if one.usd_per_gpu_hour is None and reserved_usd_per_gpu_hour(one, catalog) is None:
        fault = "no reserved price is in the catalog for it: a missing price is not zero"
        yield Problem(path, fault, "state `usd_per_gpu_hour`")
