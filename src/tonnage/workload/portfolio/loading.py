"""Read a portfolio file: text in, a frozen `Portfolio` out, or one WorkloadError that tells every problem."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from os.path import isfile
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.errors import InputError, WorkloadError, did_you_mean, nearest
from tonnage.workload.file.problems import Problem, explain_validation, raise_problem, raise_problems, shorten
from tonnage.workload.file.text import load_text
from tonnage.workload.file.yaml_lines import KeyPath, YamlDocument, read_yaml
from tonnage.workload.jobs import Workload
from tonnage.workload.portfolio.fields import CapacityFields, CommitmentFields, EntryFields, PortfolioFile
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry, Share

_PAGE: Final = "docs/portfolio.md lists every key; examples/portfolio.yaml is an example"
ReadWorkload = Callable[[Path, datetime], Workload]


def load_portfolio(path: Path | str, *, as_of: datetime, catalog: Catalog, read_workload: ReadWorkload) -> Portfolio:
    """The portfolio in a file. WorkloadError (file, line, key, hint) for whatever is wrong with it.

    `read_workload` reads a workload file as of a clock; its own errors are passed on.
    """
    path = Path(path)
    text = load_text(path, too_large=_PAGE)
    return parse_portfolio(
        text, file=str(path), folder=path.parent, as_of=as_of, catalog=catalog, read_workload=read_workload
    )


def parse_portfolio(
    text: str, *, file: str | None, folder: Path, as_of: datetime, catalog: Catalog, read_workload: ReadWorkload
) -> Portfolio:
    """The portfolio in a text; workload files are found from `folder`."""
    document = read_yaml(text, file=file)
    fields = _validate(document)
    raise_problems(find_portfolio_problems(fields, catalog), document)
    raise_problems(_missing_files(fields, folder), document)
    entries, problems = [], []
    for place, entry in enumerate(fields.workloads):
        workload = read_workload(folder / entry.file, as_of)
        problems += list(_entry_problems(place, entry, workload, as_of))
        entries.append(_freeze_entry(entry, workload, as_of))
    raise_problems(problems, document)
    name = fields.name or (Path(file).name.removesuffix(".yaml").removesuffix(".yml") if file else "portfolio")
    return Portfolio(
        name=name,
        entries=_named_apart(entries),
        as_of=as_of,
        shares=_freeze_shares(fields.shares),
        share_tolerance=fields.share_tolerance_percent / 100.0,
        capacity=tuple(_freeze_capacity(one) for one in fields.capacity),
        commitments=tuple(_freeze_commitment(one, catalog) for one in fields.reserved),
        budget_usd=fields.budget_usd,
        file=file,
    )


def _validate(document: YamlDocument) -> PortfolioFile:
    entries = document.value
    if entries is None:
        raise WorkloadError("is empty", hint=_PAGE, file=document.file)
    if not isinstance(entries, dict):
        raise_problem((), "expected keys such as `workloads:` at the top", document, _PAGE)
    if "kind" in entries:
        raise_problem(("kind",), "this is a workload file", document, "name it in the `workloads` of a portfolio file")
    try:
        return PortfolioFile.model_validate(entries)
    except ValidationError as error:
        found = explain_validation(error, PortfolioFile, document)
        raise_problems([_own_hint(problem) for problem in found], document)
        raise


def _own_hint(problem: Problem) -> Problem:
    if problem.hint is not None and "docs/workload-file.md" in problem.hint:
        return replace(problem, hint=_PAGE)
    return problem


def _missing_files(fields: PortfolioFile, folder: Path) -> list[Problem]:
    hint = "paths start from the portfolio file's folder"
    return [
        Problem(("workloads", place, "file"), f"found {shorten(entry.file)}, no such file", hint)
        for place, entry in enumerate(fields.workloads)
        if not isfile(folder / entry.file)  # a name that no system takes is no file either
    ]


def _entry_problems(place: int, entry: EntryFields, workload: Workload, as_of: datetime) -> list[Problem]:
    found = []
    if workload.is_service:
        if entry.runs_per_month != 1:
            path = ("workloads", place, "runs_per_month")
            found.append(Problem(path, "a service runs all month", "leave `runs_per_month` out"))
        if entry.deadline is not None:
            path = ("workloads", place, "deadline")
            found.append(Problem(path, "a service has no deadline", "its speed is `serve.p95_latency`"))
    elif entry.deadline is not None and entry.deadline.seconds_from(as_of) <= 0:
        path = ("workloads", place, "deadline")
        found.append(Problem(path, "found an instant that has passed", "a duration such as 8h counts from the start"))
    return found


def _freeze_entry(entry: EntryFields, workload: Workload, as_of: datetime) -> PortfolioEntry:
    if entry.deadline is not None:
        limits = replace(workload.constraints, deadline_s=entry.deadline.seconds_from(as_of))
        workload = replace(workload, constraints=limits)
    name = entry.name or workload.name
    return PortfolioEntry(name=name, workload=workload, runs_per_month=entry.runs_per_month, split=entry.split)


def _named_apart(entries: list[PortfolioEntry]) -> tuple[PortfolioEntry, ...]:
    """Entries of one name get their place behind it: `bert`, `bert` become `bert #1`, `bert #2`."""
    count = Counter(entry.name for entry in entries)
    seen: Counter[str] = Counter()
    out = []
    for entry in entries:
        seen[entry.name] += 1
        several = count[entry.name] > 1
        out.append(replace(entry, name=f"{entry.name} #{seen[entry.name]}") if several else entry)
    return tuple(out)


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
    if one.usd_per_gpu_hour is None and _reserved_usd_per_gpu_hour(one, catalog) is None:
        fault = "no reserved price is in the catalog for it: a missing price is not zero"
        yield Problem(path, fault, "state `usd_per_gpu_hour`")


def _freeze_shares(shares: Mapping[str, float]) -> tuple[Share, ...]:
    """Shares as fractions of one, in the file's order."""
    total = math.fsum(shares.values())
    return tuple(Share(provider=name, fraction=share / total) for name, share in shares.items())


def _freeze_capacity(limit: CapacityFields) -> CapacityLimit:
    return CapacityLimit(
        gpu=parse_gpu_filter(limit.gpu),
        at_once=limit.at_once,
        provider=limit.provider,
        region=limit.region,
        purchases=limit.purchases,
    )


def _freeze_commitment(one: CommitmentFields, catalog: Catalog) -> Commitment:
    """A commitment; for a machine it is bought in whole machines, else GPU by GPU."""
    step, gpu, name = 1, one.gpu, one.instance_type
    if one.instance_type is not None:
        instance = catalog.instance_type(one.instance_type, one.provider)
        step, gpu, name = max(int(instance.accelerator_count), 1), gpu or instance.accelerator, instance.name
    price = one.usd_per_gpu_hour if one.usd_per_gpu_hour is not None else _reserved_usd_per_gpu_hour(one, catalog)
    assert price is not None
    assert gpu is not None
    stated = one.usd_per_gpu_hour is not None
    return Commitment(
        provider=one.provider,
        gpu=parse_gpu_filter(gpu),
        usd_per_gpu_hour=price,
        gpus=one.gpus,
        up_to_gpus=one.gpus if one.up_to_gpus is None else one.up_to_gpus,
        step_gpus=step,
        region=one.region,
        instance_type=name,
        usable_fraction=one.usable_percent / 100.0,
        source="the portfolio file" if stated else "the catalog's reserved_1y price",
    )


def _reserved_usd_per_gpu_hour(one: CommitmentFields, catalog: Catalog) -> float | None:
    """The catalog's lowest one-year price of the machine (in `region`), per GPU and hour; None where there is none."""
    if one.instance_type is None:
        return None
    try:
        instance = catalog.instance_type(one.instance_type, one.provider)
    except InputError:  # reported by the checks
        return None
    prices = [
        float(offer.usd_per_instance_hour)
        for offer in catalog.offers_of(instance)
        if offer.purchase == "reserved_1y" and one.region in (None, offer.region)
    ]
    return min(prices) / instance.accelerator_count if prices and instance.accelerator_count else None
