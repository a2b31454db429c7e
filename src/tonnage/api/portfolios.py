"""Several workloads bought together: `tonnage.portfolio`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.errors import NothingFits
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import CalibrationSource, Clock
    from tonnage.portfolios import PortfolioPlan
    from tonnage.workload.jobs import Workload


def portfolio(
    file: Path | str,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    memory_margin: float | None = None,
    settings: Settings | None = None,
) -> Answer[PortfolioPlan]:
    """The cheapest assignment of the workloads of a portfolio file (docs/portfolio.md) that holds its shares, quotas,
    budget and reserved base, with a proven gap.

    `memory_margin` is the share of device memory kept free (0 to 0.5). The answer's fault is NothingFits where no
    assignment holds every limit. Raises WorkloadError for a file that cannot be used, PortfolioUnsolved where the
    solver finds neither an assignment nor a proof that there is none.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import calibrated_model_of, clock_of, load_workload
    from tonnage.portfolios import plan_portfolio
    from tonnage.reports.portfolio import portfolio_report
    from tonnage.workload.portfolio.loading import load_portfolio

    chosen = settings or current_settings(as_of=as_of)
    market = market_of(catalog, chosen)

    def read(path: Path, as_of: datetime) -> Workload:  # noqa: ARG001  the settings carry the clock too
        return load_workload(path, catalog=market, settings=chosen)

    asked = load_portfolio(file, as_of=clock_of(chosen), catalog=market, read_workload=read)
    found = plan_portfolio(asked, market, calibrated=calibrated_model_of(calibration, memory_margin, chosen))
    return Answer(found, portfolio_report, _fault(found))


def _fault(found: PortfolioPlan) -> NothingFits | None:
    from tonnage.reports.portfolio import describe_give
    from tonnage.reports.reasons.flips import unplaced_hint

    if found.found:
        return None
    if found.unplaced:
        first = found.unplaced[0]
        refused = f"nothing fits {first.workload}: {first.refused:,} candidates refused"
        return NothingFits(refused, hint=unplaced_hint(first))
    hint = describe_give(found.gives[0]) if found.gives else None
    return NothingFits(f"no assignment of the portfolio {found.name} holds every limit", hint=hint)
