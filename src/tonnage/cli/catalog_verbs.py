"""The group `tonnage catalog`: look-ups, imports, refresh and snapshots together."""

from __future__ import annotations

from tonnage.cli import catalog, catalog_import, catalog_refresh, snapshots

commands = catalog.commands
commands.add_typer(catalog_import.commands, name="import", short_help="Newer prices into a snapshot of your own")
commands.command("refresh", short_help="Today's prices from every source")(catalog_refresh.refresh)
commands.command("diff", short_help="What moved between two snapshots")(snapshots.diff)
commands.command("history", short_help="What a machine cost in each snapshot")(snapshots.history)
commands.command("snapshots", short_help="Snapshots at home and built in")(snapshots.snapshots)
