"""What a file excludes and which quotas it states: names held against the catalog, files of quota APIs read."""

from __future__ import annotations

from pathlib import Path

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import GpuFilter, parse_gpu_filter
from tonnage.errors import InputError, UnknownAccelerator, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.exclusions import Exclusion, parse_exclusion
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.quota_fields import QuotaFields
from tonnage.workload.file.terms_fields import ConstraintFields
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.quota_files import load_quotas
from tonnage.workload.quotas import Quota, QuotaUnit, check_family

UNITS: tuple[QuotaUnit, ...] = ("vcpus", "gpus", "machines")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketTerms:
    """What of the market is ruled out, and how much of it the account may rent."""

    exclude: tuple[Exclusion, ...] = ()
    quotas: tuple[Quota, ...] = ()


def read_market_terms(
    limits: ConstraintFields, folder: Path | None, catalog: Catalog
) -> tuple[MarketTerms, list[Problem]]:
    """The exclusions and quotas of a file, and what is wrong with them."""
    excluded: list[Exclusion] = []
    quotas: list[Quota] = []
    problems: list[Problem] = []
    for place, text in enumerate(limits.exclude):
        try:
            excluded.append(parse_exclusion(text, catalog))
        except InputError as error:
            problems.append(Problem(("constraints", "exclude", place), error.message, error.hint))
    for place, entry in enumerate(limits.quota):
        path: KeyPath = ("constraints", "quota", place)
        try:
            quotas += _quotas(entry, path, folder, catalog)
        except _Fault as fault:
            problems.append(fault.problem)
    return MarketTerms(exclude=tuple(excluded), quotas=tuple(quotas)), problems


class _Fault(Exception):
    def __init__(self, path: KeyPath, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.problem = Problem(path, message, hint)


def _quotas(entry: QuotaFields, path: KeyPath, folder: Path | None, catalog: Catalog) -> list[Quota]:
    stated = [unit for unit in UNITS if getattr(entry, unit) is not None]
    if entry.file is not None:
        if stated or entry.family or entry.gpu or entry.provider:
            raise _Fault(path, "a file states its quotas itself", "give `file` and `region` alone")
        try:
            return load_quotas((folder or Path()) / entry.file, catalog, region=entry.region or "")
        except InputError as error:
            raise _Fault((*path, "file"), error.message, error.hint) from None
    if len(stated) != 1:
        fault = "gives several limits" if stated else "gives no limit"
        raise _Fault(path, f"{fault}, expected one of {', '.join(UNITS)}", "such as `vcpus: 192`")
    return [_stated(entry, path, stated[0], catalog)]


def _stated(entry: QuotaFields, path: KeyPath, unit: QuotaUnit, catalog: Catalog) -> Quota:
    sellers = sorted({one.provider for one in catalog.instance_types})
    if entry.provider not in sellers:
        found = "is missing" if entry.provider is None else f"found '{entry.provider}', which is no provider known here"
        near = () if entry.provider is None else nearest(entry.provider, sellers, count=1)
        raise _Fault((*path, "provider"), found, did_you_mean(near, f"known: {', '.join(sellers)}"))
    provider = entry.provider
    regions = {region.name for region in catalog.regions if region.provider == provider}
    regions |= {offer.region for offer in catalog.offers if offer.provider == provider}
    if entry.region is not None and entry.region not in regions:
        hint = did_you_mean(nearest(entry.region, sorted(regions - {""}), count=1), f"{len(regions)} are known")
        raise _Fault((*path, "region"), f"found '{entry.region}', which is no region of {provider} known here", hint)
    try:
        if entry.family is not None:
            check_family(provider, entry.family, catalog)
        gpu = None if entry.gpu is None else _gpu(entry.gpu, catalog)
    except InputError as error:
        raise _Fault((*path, "family" if entry.gpu is None else "gpu"), error.message, error.hint) from None
    named = "/".join(filter(None, (provider, entry.region, entry.family or entry.gpu)))
    return Quota(
        provider=provider, unit=unit, limit=float(getattr(entry, unit)), gpu=gpu, region=entry.region or "",
        families=() if entry.family is None else (entry.family,), purchase=entry.purchase, name=named,
    )  # fmt: skip


def _gpu(text: str, catalog: Catalog) -> GpuFilter:
    wanted = parse_gpu_filter(text)
    if not catalog.accelerators_matching(wanted):
        raise UnknownAccelerator(f"'{text}' matches no GPU known here", hint="`tonnage catalog gpus` lists them all")
    return wanted
