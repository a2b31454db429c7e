"""`tonnage catalog`: what exists, where it is sold, for how much, and what a careful buyer would doubt."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.catalog_lists import GpuListOptions, InstanceListOptions, OfferListOptions
from tonnage.cli import options
from tonnage.cli.declared import CatalogSession, Commands, ReportSession, completing, opened_by
from tonnage.cli.session import Session

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look up GPUs, machines, prices and model shapes; import newer prices; check them.",
)


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
