"""`tonnage catalog`: what exists, where it is sold, for how much, what a careful buyer would doubt; snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.catalog_lists import GpuListOptions, InstanceListOptions, OfferListOptions
from tonnage.api.refreshing import RefreshOptions
from tonnage.cli import catalog_import, options
from tonnage.cli.declared import CatalogSession, Commands, MarketSession, ReportSession, completing, opened_by
from tonnage.cli.meter import Meter
from tonnage.cli.options import complete_provider, complete_region
from tonnage.cli.session import Session

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look up GPUs, machines, prices and model shapes; import newer prices; check them.",
)
commands.add_typer(catalog_import.commands, name="import", short_help="Newer prices into a snapshot of your own")


@commands.command("gpus", short_help="Accelerators: memory, bandwidth, rates")
def gpus(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    *,
    asked: GpuListOptions,
    session: CatalogSession,
) -> None:
    """List accelerators: memory, bandwidth, dense rates. --sort takes any key of the JSON, such as memory_gib."""
    session.show_answer(api.list_gpus(gpu or gpu_option, asked, settings=session.settings))


@commands.command("instances", short_help="Machines one can rent")
def instances(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    *,
    asked: Annotated[InstanceListOptions, completing(providers=options.complete_provider)],
    session: CatalogSession,
) -> None:
    """List instance types. --sort: name, provider, accelerator_count, gpu_memory_gib, vcpus, memory_gib, ..."""
    session.show_answer(api.list_instances(gpu or gpu_option, asked, settings=session.settings))


@commands.command("offers", short_help="Prices, cheapest first")
def offers(
    gpu: options.Gpu = None,
    gpu_option: options.GpuOption = None,
    *,
    asked: Annotated[
        OfferListOptions, completing(providers=options.complete_provider, regions=options.complete_region)
    ],
    session: CatalogSession,
) -> None:
    """List prices, cheapest first. --sort: usd_per_instance_hour, usd_per_gpu_hour, provider, region, read_on, ..."""
    session.show_answer(api.list_offers(gpu or gpu_option, asked, settings=session.settings))


@commands.command("services", short_help="Storage, data that moves, balancers, gateways, addresses")
def services(
    provider: options.Providers = None,
    top: options.ListTop = None,
    *,
    session: CatalogSession,
) -> None:
    """List prices of what comes besides machines, with source and date. A plan charges storage, disks and egress."""
    session.show_answer(api.list_services(provider or (), top=top, settings=session.settings))


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
    session.show_answer(api.describe_machine(name, provider=provider, settings=session.settings))


@commands.command("check", short_help="Rows a careful buyer would doubt")
def check(
    top: options.ListTop = None,
    *,
    session: Annotated[Session, opened_by("max_price_age_days", "catalog", "as_of", "output", "quiet")],
) -> None:
    """Look for rows that a careful buyer would doubt: prices far off, old, contradicting. Exit code 1 on errors."""
    session.show_answer(api.check_catalog(top=top, settings=session.settings))


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
    session.show_answer(api.list_models(name, top=top))


def _complete_source(incomplete: str) -> list[str]:
    from tonnage.sources import installed_kinds

    return [kind.name for kind in installed_kinds() if kind.name.startswith(incomplete)]


@commands.command("refresh", short_help="Today's prices from every source")
def refresh(
    asked: Annotated[
        RefreshOptions,
        completing(sources=_complete_source, providers=complete_provider, regions=complete_region),
    ],
    *,
    session: MarketSession,
) -> None:
    """Read prices from every source that has what it needs, and put them over the present ones in a new snapshot.

    Bad rows are quarantined with the reason. Exit code 0 where a source answered, 1 where none did.
    """
    with Meter(quiet=session.quiet) as meter:
        answer = api.refresh(asked, settings=session.settings, watch=meter.show)
    session.show_answer(answer)


def _complete_snapshot(incomplete: str) -> list[str]:
    from tonnage.api.snapshots import snapshot_folders_by_name
    from tonnage.settings import load_settings

    places = snapshot_folders_by_name(load_settings({}, {}, Path.cwd()).home)
    return [name for name in places if name.startswith(incomplete)]


Snapshot = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        autocompletion=_complete_snapshot,
        help="A name of `catalog snapshots`, else a date (the last of that day) or a folder.",
        show_default=False,
    ),
]


@commands.command("diff", short_help="What moved between two snapshots")
def diff(
    before: Snapshot,
    after: Snapshot,
    provider: options.Providers = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="price, new, gone or spec; may be repeated.")
    ] = None,
    top: options.ListTop = None,
    *,
    session: ReportSession,
) -> None:
    """Show what moved between two snapshots: prices (in %), offers new and gone, machines described otherwise."""
    found = api.snapshot_moves(
        before, after, providers=provider or (), kinds=kind or (), top=top, settings=session.settings
    )
    session.show_answer(found)


@commands.command("history", short_help="What a machine cost in each snapshot")
def history(
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="An instance type of the catalog.", show_default=False)
    ],
    provider: options.Providers = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Only there; may be repeated.")
    ] = None,
    purchase: Annotated[
        list[str] | None,
        typer.Option("--purchase", metavar="MODE", help="on_demand, spot, reserved_1y, ...; may be repeated."),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Show what the offers of a machine cost in each snapshot that there is, at home and built in."""
    found = api.price_history(
        machine, providers=provider or (), regions=region or (), purchases=purchase or (), settings=session.settings
    )
    session.show_answer(found)


@commands.command("snapshots", short_help="Snapshots at home and built in")
def snapshots(
    *,
    session: CatalogSession,
) -> None:
    """List the snapshots at home and the built-in ones, oldest first, and which of them plans use."""
    session.show_answer(api.list_snapshots(settings=session.settings))
