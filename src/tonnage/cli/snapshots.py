"""`tonnage catalog snapshots`, `diff` and `history`: which snapshots there are, what moved, what a machine cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.cli import options
from tonnage.cli.declared import CatalogSession, ReportSession


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


def snapshots(
    *,
    session: CatalogSession,
) -> None:
    """List the snapshots at home and the built-in ones, oldest first, and which of them plans use."""
    session.show_answer(api.list_snapshots(settings=session.settings))


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
