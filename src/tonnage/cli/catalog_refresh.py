"""`tonnage catalog refresh`: today's prices of every source at hand, in a new snapshot that plans then use."""

from __future__ import annotations

from typing import Annotated

from tonnage import api
from tonnage.api.refreshing import RefreshOptions
from tonnage.cli.declared import MarketSession, completing
from tonnage.cli.meter import Meter
from tonnage.cli.options import complete_provider, complete_region


def _complete_source(incomplete: str) -> list[str]:
    from tonnage.sources import installed_kinds

    return [kind.name for kind in installed_kinds() if kind.name.startswith(incomplete)]


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
