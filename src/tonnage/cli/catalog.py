"""`tonnage catalog`: what exists, where it is sold, for how much, and what a careful buyer would doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.declared import CatalogSession, Commands, ReportSession, opened_by
from tonnage.cli.session import Session

if TYPE_CHECKING:
    from tonnage.catalog import Catalog, GpuFilter

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look up GPUs, machines, prices and model shapes; import newer prices; check them.",
)
MinVcpus = Annotated[
    float | None, typer.Option("--min-vcpus", metavar="N", help="At least so many vCPUs.", show_default=False)
]
MinMemory = Annotated[
    float | None, typer.Option("--min-memory", metavar="GIB", help="At least so much host memory.", show_default=False)
]


@commands.command("gpus", short_help="Accelerators: memory, bandwidth, rates")
def gpus(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    sort: options.Sort = None,
    desc: options.Descending = False,
    top: options.ListTop = None,
    *,
    session: CatalogSession,
) -> None:
    """List accelerators: memory, bandwidth, dense rates. --sort takes any key of the JSON, such as memory_gib."""
    known, wanted = _known(session, gpu or gpu_option)
    from tonnage.catalog import filter_accelerators
    from tonnage.reports.catalog_lists import gpus_report

    found = filter_accelerators(known, gpu=wanted, sort_by=sort or "name", descending=desc)
    session.show(gpus_report(known, found, top=top))


@commands.command("instances", short_help="Machines one can rent")
def instances(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    provider: options.Providers = None,
    cpu_arch: Annotated[
        str | None, typer.Option("--cpu-arch", metavar="ARCH", help="x86_64 or arm64.", show_default=False)
    ] = None,
    min_vcpus: MinVcpus = None,
    min_memory: MinMemory = None,
    sort: options.Sort = None,
    desc: options.Descending = False,
    top: options.ListTop = None,
    *,
    session: CatalogSession,
) -> None:
    """List instance types. --sort: name, provider, accelerator_count, gpu_memory_gib, vcpus, memory_gib, ..."""
    known, wanted = _known(session, gpu or gpu_option)
    from tonnage.catalog import filter_instance_types
    from tonnage.errors import InputError
    from tonnage.reports.catalog_lists import instances_report

    if cpu_arch not in (None, "x86_64", "arm64"):
        raise InputError(f"no processor architecture '{cpu_arch}'", hint="x86_64 or arm64")
    found = filter_instance_types(
        known, gpu=wanted, providers=provider or (), cpu_arch=cpu_arch, min_vcpus=min_vcpus,
        min_memory_gib=min_memory, sort_by=sort or "name", descending=desc,
    )  # fmt: skip
    session.show(instances_report(known, found, top=top))


@commands.command("offers", short_help="Prices, cheapest first")
def offers(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    provider: options.Providers = None,
    region: options.Regions = None,
    area: Annotated[
        list[str] | None, typer.Option("--area", metavar="AREA", help="us, eu, uk, ap, ...; may be repeated.")
    ] = None,
    purchase: Annotated[
        list[str] | None,
        typer.Option(
            "--purchase", metavar="MODE", help="on_demand, spot, reserved_1y or reserved_3y; may be repeated."
        ),
    ] = None,
    min_vcpus: MinVcpus = None,
    min_memory: MinMemory = None,
    max_price: Annotated[
        float | None, typer.Option("--max-price", metavar="USD", help="At most, an instance-hour.", show_default=False)
    ] = None,
    max_gpu_price: Annotated[
        float | None, typer.Option("--max-gpu-price", metavar="USD", help="At most, a GPU-hour.", show_default=False)
    ] = None,
    sort: options.Sort = None,
    desc: options.Descending = False,
    top: options.ListTop = None,
    *,
    session: CatalogSession,
) -> None:
    """List prices, cheapest first. --sort: usd_per_instance_hour, usd_per_gpu_hour, provider, region, read_on, ..."""
    known, wanted = _known(session, gpu or gpu_option)
    from tonnage.catalog import filter_offers
    from tonnage.reports.catalog_lists import offers_report

    found = filter_offers(
        known, gpu=wanted, providers=provider or (), regions=region or (), areas=area or (),
        purchases=purchase or (), min_vcpus=min_vcpus, min_memory_gib=min_memory,
        max_usd_per_instance_hour=max_price, max_usd_per_gpu_hour=max_gpu_price,
        sort_by=sort or "usd_per_instance_hour", descending=desc,
    )  # fmt: skip
    session.show(offers_report(known, found, top=top))


@commands.command("services", short_help="Storage, data that moves, balancers, gateways, addresses")
def services(
    provider: options.Providers = None,
    top: options.ListTop = None,
    *,
    session: CatalogSession,
) -> None:
    """List prices of what comes besides machines, with source and date. A plan charges storage, disks and egress."""
    known, _ = _known(session, None)
    from tonnage.errors import InputError
    from tonnage.reports.catalog_lists import services_report

    sellers = sorted({row.provider for row in known.services.rows})
    unknown = sorted(set(provider or ()).difference(sellers))
    if unknown:
        raise InputError(f"no services of '{unknown[0]}' are priced here", hint=f"one of {', '.join(sellers)}")
    found = [row for row in known.services.rows if not provider or row.provider in provider]
    session.show(services_report(known, found, top=top))


@commands.command("show", short_help="All about one machine or GPU")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=options.complete_name,
            help="An instance type or a GPU.",
            show_default=False,
        ),
    ],
    provider: Annotated[
        str | None,
        typer.Option("--provider", metavar="NAME", help="Whose machine, where several sell one.", show_default=False),
    ] = None,
    *,
    session: CatalogSession,
) -> None:
    """Show everything known about one machine or GPU: figures, sources, every price and when it was read."""
    known, _ = _known(session, None)
    from tonnage.catalog import describe
    from tonnage.reports.catalog_show import show_report

    session.show(show_report(describe(known, name, provider=provider)))


@commands.command("check", short_help="Rows a careful buyer would doubt")
def check(
    top: options.ListTop = None,
    *,
    session: Annotated[Session, opened_by("max_price_age_days", "catalog", "as_of", "output", "quiet")],
) -> None:
    """Look for rows that a careful buyer would doubt: prices far off, old, contradicting. Exit code 1 on errors."""

    from tonnage.api import newest_snapshot
    from tonnage.catalog import check_catalog, load_catalog
    from tonnage.errors import CatalogError
    from tonnage.reports.catalog_lists import check_report

    settings = session.settings
    known = load_catalog(settings.catalog or newest_snapshot(settings.home), strict=False)
    today = settings.today
    found = check_catalog(known, as_of=today, max_age_days=settings.max_price_age_days)
    session.show(check_report(known, found, top=top))
    errors = sum(finding.severity == "error" for finding in found)
    if errors:
        raise CatalogError(
            f"{errors} rows of the catalog of {known.name} contradict themselves or another",
            hint="correct them in the snapshot, or use another one with --catalog",
        )


@commands.command("models", short_help="Model shapes known by name")
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Only names that contain this.", show_default=False)
    ] = None,
    top: options.ListTop = None,
    *,
    session: ReportSession,
) -> None:
    """List the model shapes known by name, with computed and published parameter counts."""
    from tonnage.reports.catalog_lists import models_report
    from tonnage.workload.known import find_model, known_records, model_record

    records = tuple(known_records().values())
    if name is not None:
        wanted = name.casefold()
        records = tuple(
            one for one in records if any(wanted in text.casefold() for text in (one.shape.name, *one.aliases))
        )
        if not records:
            find_model(name)  # raises, with the nearest names, unless it is another spelling
            records = (model_record(name),)
    session.show(models_report(records, top=top))


def _known(session: Session, gpu: str | None) -> tuple[Catalog, GpuFilter | None]:
    """The catalog, and the filter that a GPU's text means."""
    from tonnage.api import load_catalog
    from tonnage.catalog import parse_gpu_filter

    return load_catalog(settings=session.settings), None if gpu is None else parse_gpu_filter(gpu)
