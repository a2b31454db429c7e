"""What the catalog knows, as lists: `tonnage.list_gpus`, `list_instances`, `list_offers` and their like."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.catalogs import load_catalog, newest_snapshot
from tonnage.api.declaring import Options, option
from tonnage.catalog import (
    Accelerator,
    GpuFilter,
    InstanceType,
    Offer,
    describe,
    filter_accelerators,
    filter_instance_types,
    filter_offers,
    parse_gpu_filter,
)
from tonnage.catalog import check_catalog as find_doubts
from tonnage.catalog import load_catalog as load_snapshot
from tonnage.errors import CatalogError, InputError, did_you_mean, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.catalog.checks import CatalogFinding
    from tonnage.catalog.description import Description
    from tonnage.catalog.services import ServicePrice
    from tonnage.reports.rendering import Report
    from tonnage.workload.known import KnownModel

LISTS: Final = ("gpus", "instances", "offers")
MOST_ROWS: Final = 1000  # on a page
ARCHITECTURES: Final = ("x86_64", "arm64")


def _sort() -> Any:
    return option("--sort", "The field to sort by.", default=None, metavar="FIELD")


def _descending() -> Any:
    return option("--desc", "Largest first.", default=False)


def _top() -> Any:
    said = "Rows on a page; JSON and CSV hold all. [default: all]"
    return option("--top", said, default=None, metavar="N", least=1)


def _providers() -> Any:
    return option("--provider", "Only this provider; may be repeated.", default=(), metavar="NAME")


def _least_vcpus() -> Any:
    return option("--min-vcpus", "At least so many vCPUs.", default=None, metavar="N")


def _least_memory() -> Any:
    return option("--min-memory", "At least so much host memory.", default=None, metavar="GIB")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuListOptions(Options):
    """The order of a list of accelerators, by any key of its JSON."""

    sort: str | None = _sort()
    descending: bool = _descending()
    top: int | None = _top()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceListOptions(Options):
    """Which machines, in which order."""

    providers: tuple[str, ...] = _providers()
    cpu_arch: str | None = option("--cpu-arch", "x86_64 or arm64.", default=None, metavar="ARCH")
    min_vcpus: float | None = _least_vcpus()
    min_memory_gib: float | None = _least_memory()
    sort: str | None = _sort()
    descending: bool = _descending()
    top: int | None = _top()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferListOptions(Options):
    """Which prices, in which order."""

    providers: tuple[str, ...] = _providers()
    regions: tuple[str, ...] = option("--region", "Only this region; may be repeated.", default=(), metavar="NAME")
    areas: tuple[str, ...] = option("--area", "us, eu, uk, ap, ...; may be repeated.", default=(), metavar="AREA")
    purchases: tuple[str, ...] = option(
        "--purchase", "on_demand, spot, reserved_1y or reserved_3y; may be repeated.", default=(), metavar="MODE"
    )
    min_vcpus: float | None = _least_vcpus()
    min_memory_gib: float | None = _least_memory()
    max_usd_per_instance_hour: float | None = option(
        "--max-price", "At most, an instance-hour.", default=None, metavar="USD"
    )
    max_usd_per_gpu_hour: float | None = option("--max-gpu-price", "At most, a GPU-hour.", default=None, metavar="USD")
    sort: str | None = _sort()
    descending: bool = _descending()
    top: int | None = _top()


def list_gpus(
    gpu: str | None = None, asked: GpuListOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[Accelerator, ...]]:
    """Accelerators, those of a GPU filter alone. Raises InputError for what is no filter or no field."""
    from tonnage.reports.catalog_lists import gpus_report

    asked, known = asked or GpuListOptions(), load_catalog(settings=settings or current_settings())
    found = filter_accelerators(known, gpu=_filter(gpu), sort_by=asked.sort or "name", descending=asked.descending)
    return Answer(found, partial(gpus_report, known, top=asked.top))


def list_instances(
    gpu: str | None = None, asked: InstanceListOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[InstanceType, ...]]:
    """Machines that hold all conditions. Raises InputError for what is no filter, field or architecture."""
    from tonnage.reports.catalog_lists import instances_report

    asked, known = asked or InstanceListOptions(), load_catalog(settings=settings or current_settings())
    wanted = _filter(gpu)
    if asked.cpu_arch is not None and asked.cpu_arch not in ARCHITECTURES:
        raise InputError(f"no processor architecture '{asked.cpu_arch}'", hint=" or ".join(ARCHITECTURES))
    found = filter_instance_types(
        known, gpu=wanted, providers=asked.providers, cpu_arch=asked.cpu_arch, min_vcpus=asked.min_vcpus,
        min_memory_gib=asked.min_memory_gib, sort_by=asked.sort or "name", descending=asked.descending,
    )  # fmt: skip
    return Answer(found, partial(instances_report, known, top=asked.top))


def list_offers(
    gpu: str | None = None, asked: OfferListOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[Offer, ...]]:
    """Prices that hold all conditions, the cheapest first. Raises InputError for what is no filter, field or mode."""
    from tonnage.reports.catalog_lists import offers_report

    asked, known = asked or OfferListOptions(), load_catalog(settings=settings or current_settings())
    found = filter_offers(
        known, gpu=_filter(gpu), providers=asked.providers, regions=asked.regions, areas=asked.areas,
        purchases=asked.purchases, min_vcpus=asked.min_vcpus, min_memory_gib=asked.min_memory_gib,
        max_usd_per_instance_hour=asked.max_usd_per_instance_hour, max_usd_per_gpu_hour=asked.max_usd_per_gpu_hour,
        sort_by=asked.sort or "usd_per_instance_hour", descending=asked.descending,
    )  # fmt: skip
    return Answer(found, partial(offers_report, known, top=asked.top))


def list_services(
    providers: Sequence[str] = (), *, top: int | None = None, settings: Settings | None = None
) -> Answer[tuple[ServicePrice, ...]]:
    """Prices of what comes besides machines. Raises InputError for a provider of which none is known."""
    from tonnage.reports.catalog_lists import services_report

    known = load_catalog(settings=settings or current_settings())
    sellers = sorted({row.provider for row in known.services.rows})
    unknown = sorted(set(providers).difference(sellers))
    if unknown:
        raise InputError(f"no services of '{unknown[0]}' are priced here", hint=f"one of {', '.join(sellers)}")
    found = tuple(row for row in known.services.rows if not providers or row.provider in providers)
    return Answer(found, partial(services_report, known, top=top))


def list_models(text: str | None = None, *, top: int | None = None) -> Answer[tuple[KnownModel, ...]]:
    """Model shapes that are known by name, those whose name contains a text. Raises UnknownModel where none does."""
    from tonnage.reports.catalog_lists import models_report
    from tonnage.workload.known import find_model, known_records, model_record

    found = tuple(known_records().values())
    if text is not None:
        wanted = text.casefold()
        found = tuple(one for one in found if any(wanted in name.casefold() for name in (one.shape.name, *one.aliases)))
        if not found:
            find_model(text)  # raises, with the nearest names, unless it is another spelling
            found = (model_record(text),)
    return Answer(found, partial(models_report, top=top))


def describe_machine(
    name: str, *, provider: str | None = None, settings: Settings | None = None
) -> Answer[Description]:
    """Everything known of one machine or GPU. Raises UnknownName."""
    from tonnage.reports.catalog_show import show_report

    known = load_catalog(settings=settings or current_settings())
    return Answer(describe(known, name, provider=provider), show_report)


def check_catalog(*, top: int | None = None, settings: Settings | None = None) -> Answer[tuple[CatalogFinding, ...]]:
    """Rows that a careful buyer would doubt. The answer's fault is a CatalogError where rows contradict each other."""
    from tonnage.reports.catalog_lists import check_report

    settings = settings or current_settings()
    known = load_snapshot(settings.catalog or newest_snapshot(settings.home), strict=False)
    found = tuple(find_doubts(known, as_of=settings.today, max_age_days=settings.max_price_age_days))
    errors = sum(one.severity == "error" for one in found)
    fault = None
    if errors:
        fault = CatalogError(
            f"{errors} rows of the catalog of {known.name} contradict themselves or another",
            hint="correct them in the snapshot, or use another one with --catalog",
        )
    return Answer(found, partial(check_report, known, top=top), fault)


def catalog_list(what: str, *, gpu: str | None, provider: str | None, settings: Settings) -> Report:
    """Accelerators, machines or offers, those of a GPU filter and a provider alone, for readers that have no flags.

    Raises InputError for an unknown list and for an invalid filter, UnknownName for an unknown GPU or provider.
    """
    if what not in LISTS:
        raise InputError(f"no list '{what[:40]}'", hint=did_you_mean(nearest(what, LISTS), ", ".join(LISTS)))
    providers = () if provider is None else (provider,)
    if what == "gpus":
        return list_gpus(gpu, GpuListOptions(top=MOST_ROWS), settings=settings).report()
    if what == "instances":
        machines = InstanceListOptions(providers=providers, top=MOST_ROWS)
        return list_instances(gpu, machines, settings=settings).report()
    return list_offers(gpu, OfferListOptions(providers=providers, top=MOST_ROWS), settings=settings).report()


def _filter(gpu: str | None) -> GpuFilter | None:
    return None if gpu is None else parse_gpu_filter(gpu)
