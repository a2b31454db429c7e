"""`tonnage spot advise` as a report: hours, bill, checkpoint interval, the chance to miss, and why it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.pricing.renewal import RenewalRun
from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, field_table, field_values, fields_report
from tonnage.reports.plain import plain_number
from tonnage.reports.reasons.spot_refusals import spot_refusal_document, spot_refusal_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_duration, render_money, short
from tonnage.spot_instances.advice import Expected, SpotAdvice
from tonnage.units import SECONDS_PER_HOUR

SCHEMA: Final = "tonnage/spot-advice@1"


def advice_report(answer: SpotAdvice) -> Report:
    """The report in its three contents."""
    return fields_report(
        lambda: Page(title="Spot advice", blocks=tuple(_blocks(answer))),
        lambda: _document(answer),
        _way_fields(answer),
        _ways(answer),
    )


def _ways(answer: SpotAdvice) -> list[tuple[str, RenewalRun]]:
    asked = answer.question
    own = asked.interval_h is not None or not asked.checkpoints
    return [
        ("as asked" if own else "as plans save", answer.chosen.value),
        ("best interval", answer.best),
        ("Young's interval", answer.young),
        ("no checkpoints", answer.unsaved),
    ]


def _way_fields(answer: SpotAdvice) -> Fields[tuple[str, RenewalRun]]:
    asked = answer.question

    def saves_every(hours: float) -> str:
        return render_duration(hours * SECONDS_PER_HOUR) if hours < asked.work_h else "never"

    return (
        Field("way", lambda one: one[0], title=""),
        Field("interval_h", lambda one: one[1].interval_h, title="saves every", show=saves_every, right=True),
        Field("expected_h", lambda one: one[1].expected_h, title="expected", show=_hours, right=True),
        Field("billed_h", lambda one: one[1].billed_h, title="billed", show=_hours, right=True),
        Field("cost_vs_on_demand", lambda one: one[1].billed_h / answer.on_demand_cost, title="vs on-demand",
              show=short, right=True),
        Field("cost_usd", lambda one: _usd(answer, one[1].billed_h), title=None if asked.usd_per_h is None else "cost",
              show=render_money, right=True),
        Field("preemptions", lambda one: one[1].preemptions, title="preemptions", show=short, right=True, folds=1,
              fold_text="{} preemptions"),
    )  # fmt: skip


def _usd(answer: SpotAdvice, hours: float) -> float | None:
    asked = answer.question
    return None if asked.usd_per_h is None else hours * asked.usd_per_h * asked.nodes


def _interval(value: float | None, low: float | None, high: float | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "value": plain_number(value), "low": plain_number(low), "high": plain_number(high), "basis": "computed",
    }  # fmt: skip


def _document(answer: SpotAdvice) -> dict[str, Any]:
    asked, chosen = answer.question, answer.chosen
    return {
        "schema": SCHEMA,
        "refused": None if answer.refused is None else spot_refusal_words(answer.refused),
        "refused_value": spot_refusal_document(answer.refused),
        "job": {
            "work_h": plain_number(asked.work_h), "deadline_h": plain_number(asked.deadline_h),
            "changeover_h": plain_number(asked.changeover_h), "price_ratio": plain_number(asked.price_ratio),
            "save_h": plain_number(asked.save_h), "nodes": asked.nodes,
            "spot_usd_per_machine_hour": plain_number(asked.usd_per_h),
        },
        "expected_h": _interval(chosen.value.expected_h, chosen.low.expected_h, chosen.high.expected_h),
        "billed_h": _interval(chosen.value.billed_h, chosen.low.billed_h, chosen.high.billed_h),
        "cost_usd": _interval(*(_usd(answer, run.billed_h) for run in (chosen.value, chosen.low, chosen.high))),
        "miss_chance_on_spot_alone": plain_number(answer.miss_chance),
        "checkpoints": {
            "best_interval_h": plain_number(answer.best.interval_h),
            "young_interval_h": plain_number(answer.young_interval_h),
            "daly_expected_h_at_young": plain_number(answer.young_by_daly_h),
        },
        "ways": [field_values(_way_fields(answer), way) for way in _ways(answer)],
        "with_policy": _policy(answer),
        "assumptions": {
            "preemptions_per_h": plain_number(answer.hazard_per_h),
            "mean_wait_h": plain_number(answer.wait_h),
            "model": answer.model_source,
            "seed": asked.seed,
        },
    }  # fmt: skip


def _policy(answer: SpotAdvice) -> dict[str, Any] | None:
    found = answer.policy
    if found is None:
        return None
    bill = answer.on_demand_cost
    figures = (found.cost_vs_on_demand, found.cost_vs_on_demand_low, found.cost_vs_on_demand_high)
    return {
        "cost_vs_on_demand": _interval(*figures),
        "cost_usd": _interval(*(_usd(answer, figure * bill) for figure in figures)),
        "finished_h": plain_number(found.finished_h),
        "misses": found.misses,
        "windows": found.windows,
    }


def _blocks(answer: SpotAdvice) -> Iterator[Block]:
    if answer.refused is not None:
        yield Paragraph(text=f"Refused: {spot_refusal_words(answer.refused)}.", tone="warning")
    yield Pairs(rows=tuple(_pairs(answer)))
    yield Heading(text="On spot alone, by checkpoint interval")
    yield field_table(_way_fields(answer), _ways(answer))
    yield Paragraph(
        text="Typical zone; (low-high): zones at the ends of the 80 % interval. Expected and billed hours are exact "
        "for hazards that fall with age; if lives were exponential, Daly's formula would bill "
        f"{_hours(answer.young_by_daly_h)} at Young's interval.",
        tone="faint",
    )


def _pairs(answer: SpotAdvice) -> Iterator[tuple[str, str]]:
    asked, chosen = answer.question, answer.chosen
    machines = "" if asked.nodes == 1 else f" on {asked.nodes} machines"
    yield "work", f"{asked.work_h:g} h{machines}, {asked.changeover_h:g} h a launch"
    yield "expected on spot alone", _range(chosen, "expected_h")
    yield "billed", _range(chosen, "billed_h")
    yield "best checkpoint interval", f"{render_duration(answer.best.interval_h * SECONDS_PER_HOUR)} of work"
    yield "spot", f"{short(1 / answer.hazard_per_h)} h between preemptions, {short(answer.wait_h)} h away, on average"
    if answer.miss_chance is not None:
        yield (
            "deadline",
            f"{asked.deadline_h:g} h; spot alone misses it with a chance of {100 * answer.miss_chance:.0f} %",
        )
    if answer.policy is not None:
        found = answer.policy
        yield (
            "with the policy",
            f"{found.cost_vs_on_demand:.2f} of on-demand's bill ({found.cost_vs_on_demand_low:.2f}-"
            f"{found.cost_vs_on_demand_high:.2f}), {found.misses} of {found.windows} deadlines missed",
        )
    yield "hazard model", answer.model_source


def _range(chosen: Expected, name: str) -> str:
    value, low, high = (getattr(run, name) for run in (chosen.value, chosen.low, chosen.high))
    return f"{_hours(value)} ({_hours(low)}-{_hours(high)})"


def _hours(hours: float) -> str:
    text = short(hours)
    return "without end" if text == UNKNOWN else f"{text} h"
