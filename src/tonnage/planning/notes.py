"""What to know before relying on a plan: left-out prices, assumed terms, the rows behind its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast, get_args

from tonnage.catalog import Catalog
from tonnage.planning.assumed import terms_assumed
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.plan import MachineOption, Option
from tonnage.planning.reasons.notes import (
    AssumedTerm,
    AssumedTermsNote,
    BatchAboveSamplesNote,
    ClosedFormNote,
    EngineClass,
    EngineNote,
    IntervalsNote,
    JudgedIntervalsNote,
    LeftOutPriceNote,
    MoreLeftOutNote,
    NoOffersNote,
    PlanNote,
    TermName,
    UnpricedServiceNote,
    UnreadPlatform,
    UnreadPlatformNote,
)
from tonnage.pricing.extras import Extras
from tonnage.workload.jobs import BatchJob, ServeJob, TrainJob, Workload

LEFT_OUT_NAMED: Final = 5  # rows of a snapshot that a plan names one by one


def plan_notes(
    workload: Workload, catalog: Catalog, options: Sequence[Option], calibrated: CalibratedModel
) -> tuple[PlanNote, ...]:
    """Every note of a plan of `workload`, whose ranked options are `options`."""
    return (
        *left_out_notes(catalog),
        *_unsold(workload, catalog),
        *_terms(workload),
        *_batch(workload),
        *_unpriced_services(workload, catalog),
        *_unread_platforms(workload, catalog),
        *_predictions(workload, options, calibrated),
    )


def left_out_notes(catalog: Catalog) -> tuple[LeftOutPriceNote | MoreLeftOutNote, ...]:
    """Rows of the snapshot whose prices cannot be used: the first few one by one, the others by number."""
    named = [LeftOutPriceNote(row=text) for text in catalog.left_out[:LEFT_OUT_NAMED]]
    rest = len(catalog.left_out) - len(named)
    return (*named, *([MoreLeftOutNote(rows=rest)] if rest else ()))


def _unsold(workload: Workload, catalog: Catalog) -> Iterator[NoOffersNote]:
    sold = {offer.purchase for offer in catalog.offers}
    return (NoOffersNote(purchase=purchase) for purchase in workload.buy.purchases if purchase not in sold)


def _terms(workload: Workload) -> Iterator[AssumedTermsNote]:
    if workload.is_service:
        return
    found = terms_assumed(workload)
    if found:
        terms = tuple(
            AssumedTerm(name=cast(TermName, one.name), value=one.value, low=one.low, high=one.high) for one in found
        )
        yield AssumedTermsNote(terms=terms)


def _batch(workload: Workload) -> Iterator[BatchAboveSamplesNote]:
    job = workload.job
    if isinstance(job, TrainJob) and job.global_batch > job.samples:
        yield BatchAboveSamplesNote(global_batch=job.global_batch, samples=job.samples)


def _unpriced_services(workload: Workload, catalog: Catalog) -> Iterator[UnpricedServiceNote]:
    extras = Extras(workload=workload, services=catalog.services)
    for service in extras.unpriced():
        yield UnpricedServiceNote(service=service, sellers=tuple(catalog.services.sellers(service)))


def _unread_platforms(workload: Workload, catalog: Catalog) -> Iterator[UnreadPlatformNote]:
    """Platforms that sell this kind of work unpriced; one that is asked for by name has its fees estimated."""
    if workload.is_service and not workload.constraints.platforms and catalog.managed.dbu_prices:
        yield from (UnreadPlatformNote(platform=platform) for platform in get_args(UnreadPlatform))


def _predictions(workload: Workload, options: Sequence[Option], calibrated: CalibratedModel) -> Iterator[PlanNote]:
    """What the figures rest on: the engine, the form of the percentiles, the rows behind the intervals."""
    job = workload.job
    if isinstance(job, ServeJob | BatchJob):
        yield EngineNote(engine=job.engine, engine_class=cast(EngineClass, calibrated.engine(job).name))
    if job.is_service:
        yield ClosedFormNote()
    best = next(iter(options), None)
    intervals = best.run.intervals if isinstance(best, MachineOption) else ()
    if intervals and not any(one.rows for one in intervals):
        yield JudgedIntervalsNote()
    elif intervals:
        yield IntervalsNote(calibrated_on=calibrated.made_on, intervals=intervals)
