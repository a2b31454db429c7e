"""Ask several sources at once, judge what they answer, and put it over the present catalog."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, Queue
from threading import Event, Thread
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer
from tonnage.catalog.reserved import reserved_offers, uncommitted_offers
from tonnage.errors import TonnageError
from tonnage.sources.judging import FACTOR, OfferKey, judge_managed, judge_offers, offer_key, refused_offer
from tonnage.sources.managed_prices import as_catalog, overlay, with_known_names
from tonnage.sources.results import (
    ManagedPriceRow,
    PriceSource,
    QuarantinedRow,
    SourceReport,
    SourceResult,
    most_frequent_first,
)
from tonnage.values import dataclass

POLL_S: Final = 0.1  # how soon a Ctrl-C is noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """The catalog's rows with the new ones over them, and what became of every source, in the order asked."""

    instances: tuple[InstanceType, ...]
    offers: tuple[Offer, ...]
    managed: tuple[ManagedPriceRow, ...]
    quarantined: tuple[QuarantinedRow, ...]
    reports: tuple[SourceReport, ...]
    read: int  # offers and managed prices that were read and accepted

    @property
    def answered(self) -> tuple[SourceReport, ...]:
        return tuple(report for report in self.reports if report.error is None)


def ask_sources(
    sources: Sequence[PriceSource], *, timeout_s: float, stop: Event, progress: Callable[[Sequence[str]], None]
) -> list[SourceResult]:
    """Every source's answer, in their order; one that fails or is not done in time says so in its report.

    Each runs in a thread of its own that does not keep the process alive. `stop` is set at the end and on Ctrl-C, and
    `progress` is called with the names still awaited.
    """
    done: Queue[tuple[int, SourceResult]] = Queue()
    for number, source in enumerate(sources):
        Thread(target=_ask, args=(number, source, done), name=f"source {source.name}", daemon=True).start()
    answers: dict[int, SourceResult] = {}
    end = time.monotonic() + timeout_s
    try:
        while len(answers) < len(sources) and time.monotonic() < end:
            progress([source.name for number, source in enumerate(sources) if number not in answers])
            try:
                number, answer = done.get(timeout=min(POLL_S, max(0.0, end - time.monotonic())))
            except Empty:
                continue
            answers[number] = answer
    finally:
        stop.set()
    late = f"did not answer within {timeout_s:g} s"
    return [answers.get(number) or _failed(source.name, late) for number, source in enumerate(sources)]


def _ask(number: int, source: PriceSource, done: Queue[tuple[int, SourceResult]]) -> None:
    try:
        answer = source.fetch()
        if not answer.offers and not answer.managed:
            answer = replace(answer, report=replace(answer.report, error=_nothing_usable(answer.report)))
    except TonnageError as error:
        answer = _failed(source.name, error.message)
    except Exception as error:  # a source is someone else's data: whatever it breaks, the others go on
        answer = _failed(source.name, f"{type(error).__name__}: {error}"[:300])
    done.put((number, answer))


def _failed(name: str, why: str) -> SourceResult:
    report = SourceReport(source=name, rows_read=0, rows_used=0, dropped=(), error=why)
    return SourceResult(instances=(), offers=(), report=report)


def _nothing_usable(report: SourceReport) -> str:
    reasons = "; ".join([*(f"{reason} ({rows})" for reason, rows in report.dropped[:3]), *report.incomplete])
    return f"no row of {report.rows_read} can be used ({reasons or 'it is empty'})"


def merge_answers(known: Catalog, managed: Sequence[ManagedPriceRow], answers: Sequence[SourceResult]) -> Refreshed:
    """The answers, the first source's price where several have one, judged and put over the catalog.

    A price that no source names any more stays with its old date, and grows stale there. Committed prices that a
    managed row states are compared again with the on-demand prices they were read with.
    """
    machines: dict[tuple[str, str], InstanceType] = {}
    reports: list[SourceReport] = []
    quarantined: list[QuarantinedRow] = []
    standing: dict[OfferKey, Offer] = {}
    tokens: list[ManagedPriceRow] = []
    models = as_catalog(managed).token_models
    for answer in answers:
        judged = judge_offers(known, [*machines.values(), *answer.instances], answer.offers)
        clashes = _take(judged.offers, standing)
        named = with_known_names(answer.managed, models)
        good_tokens, bad_tokens = judge_managed(managed, named, answer.report.source)
        tokens += good_tokens
        refused = [*judged.quarantined, *clashes, *bad_tokens]
        for machine in answer.instances:
            machines.setdefault(machine.key, machine)
        quarantined += [*answer.quarantined, *refused]
        good = len(judged.offers) - len(clashes) + len(good_tokens)
        reports.append(_counted(answer.report, refused, some_stand=good > 0))
    prices = overlay(managed, tokens)
    own = uncommitted_offers(known.offers, as_catalog(managed).reserved)
    listed = {offer_key(offer): offer for offer in own} | standing
    sold = {(offer.provider, offer.instance_type) for offer in standing.values()}
    new = {key: machine for key, machine in machines.items() if key in sold}
    instances = tuple(({machine.key: machine for machine in known.instance_types} | new).values())
    committed, _ = reserved_offers(as_catalog(prices).reserved, instances, listed.values())
    return Refreshed(
        instances=instances,
        offers=tuple(({offer_key(offer): offer for offer in committed} | listed).values()),
        managed=prices,
        quarantined=tuple(quarantined),
        reports=tuple(reports),
        read=len(standing) + len(tokens),
    )


def _take(offers: Sequence[Offer], standing: dict[OfferKey, Offer]) -> list[QuarantinedRow]:
    """Offers that an earlier source has not; those that contradict its price are quarantined."""
    clashes = []
    for offer in offers:
        mine = standing.setdefault(offer_key(offer), offer)
        ratio = float(offer.usd_per_instance_hour / mine.usd_per_instance_hour)
        if not 1 / FACTOR <= ratio <= FACTOR:
            clashes.append(refused_offer(offer, f"more than {FACTOR:g} times off the price of an earlier source"))
    return clashes


def _counted(report: SourceReport, refused: Sequence[QuarantinedRow], *, some_stand: bool) -> SourceReport:
    """The report with the rows that were refused after the source itself had used them."""
    if not refused:
        return report
    extra = Counter(row.reason for row in refused)
    report = replace(
        report,
        rows_used=max(1 if some_stand else 0, report.rows_used - len(refused)),
        dropped=most_frequent_first(Counter(dict(report.dropped)) + extra),
        quarantined=most_frequent_first(Counter(dict(report.quarantined)) + extra),
    )
    return report if some_stand else replace(report, error=_nothing_usable(report))
