"""`tonnage serve simulate` as a report: policies on one load, replicas against the load over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.blocks import Block, Heading, LineChart, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_number
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.scaling import scaling_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, render_duration, render_money, short
from tonnage.scaling.comparing import OWN, PolicyComparison, PolicyResult, thinned_load
from tonnage.scaling.fleet import Change
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

SCHEMA: Final = "tonnage/scaling-simulation@1"
_MOST_CHANGES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedPolicy:
    """A policy with its bill."""

    result: PolicyResult
    usd: float | None


def scaling_report(found: PolicyComparison, *, usd_per_hour: float | None = None) -> Report:
    """The report in its three contents."""
    rows = [_PricedPolicy(result=one, usd=_usd(found, one, usd_per_hour)) for one in found.results]
    return fields_report(
        lambda: Page(title="Autoscaling simulated", blocks=tuple(_blocks(found, rows, usd_per_hour))),
        lambda: _document(found, rows, usd_per_hour),
        _FIELDS, rows,
    )  # fmt: skip


def _usd(found: PolicyComparison, one: PolicyResult, usd_per_hour: float | None) -> float | None:
    if usd_per_hour is None:
        return None
    return usd_per_hour * (one.run.replica_hours + one.run.warm_hours * found.start_up.warm_cost_fraction)


def _document(found: PolicyComparison, rows: list[_PricedPolicy], usd_per_hour: float | None) -> dict[str, Any]:
    service, best = found.service, found.best_baseline
    return {
        "schema": SCHEMA,
        "load": {
            "name": found.load.name, "requests": len(found.load), "span_s": plain_number(found.load.span_s),
            "mean_slots": plain_number(found.load.mean_slots), "judged_from_s": plain_number(found.judged_from_s),
        },
        "service": {
            "slots": service.slots, "start_up_s": plain_number(service.start_up_s),
            "start_up_variation": plain_number(found.start_up.variation), "warm": found.start_up.warm,
            "promise_s": plain_number(service.promise_s), "least": service.least, "most": service.most,
            "promised_fraction": plain_number(service.promised_fraction),
        },
        "tuning": found.tuning,
        "usd_per_replica_hour": None if usd_per_hour is None else plain_number(usd_per_hour),
        "clairvoyant_replica_hours": plain_number(found.clairvoyant_replica_hours),
        "policies": [field_values(_FIELDS, row) for row in rows],
        "best_baseline": best.policy if best else None,
        "vs_best_baseline": None if found.vs_best_baseline is None else plain_number(found.vs_best_baseline),
        "changes": [_change(one) for one in found.own.run.changes] if found.own else [],
    }  # fmt: skip


def _change(one: Change) -> dict[str, Any]:
    reason = reason_document(one.reason, scaling_words(one.reason))
    return {"at_s": plain_number(one.at_s), "wanted": one.wanted, "reason": reason}


def _blocks(found: PolicyComparison, rows: list[_PricedPolicy], usd_per_hour: float | None) -> Iterator[Block]:
    service = found.service
    judged_s = found.load.span_s - found.judged_from_s
    yield Pairs(rows=tuple(_facts(found, judged_s)))
    fields = _FIELDS if usd_per_hour is not None else [one for one in _FIELDS if one.key != "usd"]
    yield Heading(text=f"Policies, {render_duration(judged_s)} judged")
    yield field_table(fields, rows)
    yield Pairs(rows=(("clairvoyant", f"{found.clairvoyant_replica_hours:.2f} replica-hours, no request late"),))
    yield from _verdict(found)
    yield LineChart(
        title="Slots held and the load", x_title="h", y_title="slots",
        series=(("load", thinned_load(found.load)), *(
            (one.policy, tuple((round(at / SECONDS_PER_HOUR, 3), float(paid * service.slots))
                               for at, paid, _, _ in one.run.timeline))
            for one in _shown(found))),
    )  # fmt: skip
    if found.own is not None and found.own.run.changes:
        yield Heading(text="The last changes of the law")
        yield field_table(_CHANGES, found.own.run.changes[-_MOST_CHANGES:])
    how = "on what is judged, in hindsight" if found.tuning == "hindsight" else "on the past"
    yield Paragraph(
        text=f"Rivals are tuned {how}: the cheapest setting that keeps the promise, the most careful one where none "
        "does. Setting: replicas of static, else the target as a part of a replica's slots or of its full rate.",
        tone="faint",
    )


def _facts(found: PolicyComparison, judged_s: float) -> Iterator[tuple[str, str]]:
    load, service = found.load, found.service
    rate = len(load) / load.span_s
    yield (
        "load",
        f"{load.name}: {plural(len(load), 'request')} in {render_duration(load.span_s)}, {short(rate)} a second",
    )
    yield "in use", f"{short(load.mean_slots)} slots on average, {service.slots} a replica"
    warm = f", {plural(found.start_up.warm, 'warm replica')}" if found.start_up.warm else ""
    yield "replicas", f"{service.least} to {service.most}, {short(service.start_up_s)} s to start{warm}"
    yield "promise", f"{100 * service.promised_fraction:g} % wait at most {service.promise_s:g} s for a slot"
    if judged_s < load.span_s:
        yield "past", f"the first {render_duration(found.judged_from_s)}: learnt from, not judged"


def _verdict(found: PolicyComparison) -> Iterator[Block]:
    best, own, ratio = found.best_baseline, found.own, found.vs_best_baseline
    if own is None:
        return
    if not own.keeps:
        yield Paragraph(text="tonnage misses the promise on this load.", tone="warning")
    elif best is None or ratio is None:
        yield Paragraph(text="No rival keeps the promise at any setting tried.", tone="faint")
    else:
        tone: Any = "good" if ratio <= 1.0 else "warning"
        yield Paragraph(text=f"tonnage takes {ratio:.2f} times the replica-hours of {best.policy}, the cheapest rival "
                        "that keeps the promise.", tone=tone)  # fmt: skip


def _shown(found: PolicyComparison) -> list[PolicyResult]:
    """The lines of the chart: the law and the best rival."""
    best = found.best_baseline
    lines = [one for one in found.results if one.policy == OWN or one is best]
    return lines or list(found.results[:1])


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _two(value: float) -> str:
    return f"{value:.2f}"


_FIELDS: Final[Fields[_PricedPolicy]] = (
    Field("policy", lambda row: row.result.policy, title="policy"),
    Field("setting", lambda row: row.result.setting, title="setting", right=True, folds=3, fold_text="setting {}",
          show=lambda value: "" if value is None else f"{value:g}"),
    Field("kept_fraction", lambda row: row.result.run.kept_fraction, title="kept %", show=_percent, right=True),
    Field("keeps_promise", lambda row: row.result.keeps),
    Field("replica_hours", lambda row: row.result.run.replica_hours, title="replica-hours", show=_two, right=True),
    Field("vs_clairvoyant", lambda row: row.result.vs_clairvoyant, title="vs clairvoyant", show=_two, right=True),
    Field("usd", lambda row: row.usd, title="cost", right=True,
          show=lambda value: "" if value is None else render_money(value)),
    Field("starts", lambda row: row.result.run.starts, title="starts", right=True, folds=1, fold_text="{} starts"),
    Field("most_replicas", lambda row: row.result.run.most_replicas, title="most", right=True, folds=4,
          fold_text="at most {}"),
    Field("wait_p50_s", lambda row: row.result.run.wait_p50_s),
    Field("wait_p99_s", lambda row: row.result.run.wait_p99_s, title="p99 wait s", show=_two, right=True, folds=2,
          fold_text="p99 wait {} s"),
    Field("requests", lambda row: row.result.run.requests),
    Field("late", lambda row: row.result.run.late),
    Field("lost", lambda row: row.result.run.lost),
)  # fmt: skip
_CHANGES: Final[Fields[Change]] = (
    cell("at", lambda one: render_duration(one.at_s), right=True),
    cell("replicas", lambda one: str(one.wanted), right=True),
    cell("because", lambda one: scaling_words(one.reason), wraps=True),
)
