"""`tonnage spot advise` as a report: hours, bill, checkpoint interval, the chance to miss, and why it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.pricing.renewal import RenewalRun
from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.reasons.spot_refusals import spot_refusal_document, spot_refusal_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_duration, render_money, short
from tonnage.spot_instances.advice import Expected, SpotAdvice
from tonnage.units import SECONDS_PER_HOUR

SCHEMA: Final = "tonnage/spot-advice@1"
_COLUMNS: Final = ("way", "interval_h", "expected_h", "billed_h", "cost_vs_on_demand", "cost_usd", "preemptions")


def advice_report(answer: SpotAdvice) -> Report:
    """The report in its three contents."""
    return Report(
        page=lambda: Page(title="Spot advice", blocks=tuple(_blocks(answer))),
        document=lambda: _document(answer),
        columns=_COLUMNS,
        rows=lambda: [[name, *_run(answer, run).values()] for name, run in _ways(answer)],
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


def _run(answer: SpotAdvice, run: RenewalRun) -> dict[str, Any]:
    return {
        "interval_h": plain_number(run.interval_h),
        "expected_h": plain_number(run.expected_h),
        "billed_h": plain_number(run.billed_h),
        "cost_vs_on_demand": plain_number(run.billed_h / answer.on_demand_cost),
        "cost_usd": plain_number(_usd(answer, run.billed_h)),
        "preemptions": plain_number(run.preemptions),
    }


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
        "ways": [{"way": name} | _run(answer, run) for name, run in _ways(answer)],
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
    columns = (
        Column(title=""),
        Column(title="saves every", align="right"),
        Column(title="expected", align="right"),
        Column(title="billed", align="right"),
        Column(title="vs on-demand", align="right"),
        *((Column(title="cost", align="right"),) if answer.question.usd_per_h is not None else ()),
        Column(title="preemptions", align="right", folds=1, fold_text="{} preemptions"),
    )
    yield Table(columns=columns, rows=tuple(_cells(answer, name, run) for name, run in _ways(answer)))
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


def _cells(answer: SpotAdvice, name: str, run: RenewalRun) -> tuple[str, ...]:
    usd = _usd(answer, run.billed_h)
    return (
        name,
        render_duration(run.interval_h * SECONDS_PER_HOUR) if run.interval_h < answer.question.work_h else "never",
        _hours(run.expected_h),
        _hours(run.billed_h),
        short(run.billed_h / answer.on_demand_cost),
        *(() if usd is None else (render_money(usd),)),
        short(run.preemptions),
    )
