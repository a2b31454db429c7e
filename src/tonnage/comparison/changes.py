"""What would change the answer: each change found by deciding again on changed inputs, so that it holds when tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from tonnage.comparison.computed import Total
from tonnage.comparison.crossings import End, cost_at
from tonnage.comparison.horizons import WEEKS_PER_MONTH, Bill
from tonnage.comparison.verdict import DecisionInputs, Verdict, decide_verdict, without_hours
from tonnage.sizing.estimates import Figure, add_figures
from tonnage.values import dataclass

Kind = Literal[
    "price of the choice", "price of another", "people-hours", "volume", "horizon", "worth", "rule", "another model"
]
LEAST, MOST = 0.1, 10.0  # factors on a bill or on people-hours that are looked at
LEAST_WORTH, MOST_WORTH = 0.01, 1e7  # dollars a month
STEPS: Final = 24
LONGEST_WEEKS: Final = 260.0
FINE: Final = 1e-4  # a threshold is found to within this share of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """One change and the answer it leads to. `now` and `at` in `unit`: beyond `at` the answer is `then`."""

    kind: Kind
    subject: str  # the alternative whose figure changes, or the rule; "" for volume and horizon
    now: float
    at: float
    unit: str
    then: str | None


def changes_of(inputs: DecisionInputs, verdict: Verdict, totals: Mapping[str, Total]) -> tuple[AnswerChange, ...]:
    """The nearest change of each kind that leads to another answer."""
    if verdict.choice is None:
        return (*_rules(inputs, verdict), *_other_models(inputs, verdict))
    others = [name for name in inputs.bills if name != verdict.choice]
    prices = [one for name in others if (one := _other_price(inputs, name)) is not None]
    worths = [one for name in others if (one := _worth(inputs, name)) is not None]
    found = [
        _own_price(inputs, verdict.choice),
        min(prices, key=lambda one: (one.now / one.at, one.subject), default=None),
        _people(inputs, verdict.choice),
        *_volumes(inputs, verdict.choice, totals),
        *_horizons(inputs, verdict.choice),
        min(worths, key=lambda one: (one.at, one.subject), default=None),
    ]
    known = (one for one in found if one is not None)
    return (*known, *_rules(inputs, verdict), *_other_models(inputs, verdict))


def _answer(inputs: DecisionInputs) -> str | None:
    return decide_verdict(inputs).choice


def _first(
    now: float, far: float, answer: Callable[[float], str | None], accept: Callable[[str | None], bool]
) -> tuple[float, str | None] | None:
    """The value nearest `now`, on the way to `far`, from which the answer is accepted; found on a grid of factors,
    then halved."""
    before = now
    for value in np.geomspace(now, far, STEPS + 1)[1:]:
        if accept(answer(float(value))):
            held, changed = before, float(value)
            while abs(changed - held) > FINE * abs(changed):
                middle = math.sqrt(held * changed)
                held, changed = (held, middle) if accept(answer(middle)) else (middle, changed)
            return changed, answer(changed)
        before = float(value)
    return None


def _with_bill(inputs: DecisionInputs, name: str, bill: Bill) -> DecisionInputs:
    return replace(inputs, bills={**inputs.bills, name: bill})


def _own_price(inputs: DecisionInputs, choice: str) -> AnswerChange | None:
    """What the choice may cost a month to run before another is the answer."""
    bill = inputs.bills[choice]
    run = bill.run
    if run is None or run.value <= 0:
        return None

    def answer(factor: float) -> str | None:
        return _answer(_with_bill(inputs, choice, replace(bill, run=run.scaled(factor))))

    found = _first(1.0, MOST, answer, lambda one: one != choice)
    return found and AnswerChange(kind="price of the choice", subject=choice, now=run.value, at=run.value * found[0],
                            unit="USD a month", then=found[1])  # fmt: skip


def _other_price(inputs: DecisionInputs, name: str) -> AnswerChange | None:
    """What another would have to cost a month to run to be the answer."""
    bill = inputs.bills[name]
    run = bill.run
    if run is None or run.value <= 0:
        return None

    def answer(factor: float) -> str | None:
        return _answer(_with_bill(inputs, name, replace(bill, run=run.scaled(factor))))

    found = _first(1.0, LEAST, answer, lambda one: one == name)
    return found and AnswerChange(kind="price of another", subject=name, now=run.value, at=run.value * found[0],
                            unit="USD a month", then=name)  # fmt: skip


def _people(inputs: DecisionInputs, choice: str) -> AnswerChange | None:
    """What the people of the choice may cost a month before another is the answer."""
    bill = inputs.bills[choice]
    people = bill.people
    if people is None or people.value <= 0:
        return None

    def answer(factor: float) -> str | None:
        return _answer(_with_bill(inputs, choice, replace(bill, people=people.scaled(factor))))

    found = _first(1.0, MOST, answer, lambda one: one != choice)
    return found and AnswerChange(kind="people-hours", subject=choice, now=people.value, at=people.value * found[0],
                            unit="USD a month", then=found[1])  # fmt: skip


def at_volume(inputs: DecisionInputs, totals: Mapping[str, Total], factor: float) -> DecisionInputs:
    """The inputs with so many times the volume; what cannot carry it has no bill."""
    return replace(
        inputs, bills={name: replace(bill, run=_run_at(bill, totals[name], factor))
                        for name, bill in inputs.bills.items()}
    )  # fmt: skip


def _run_at(bill: Bill, total: Total, factor: float) -> Figure | None:
    if bill.run is None or factor == 1.0:
        return bill.run
    if not any(row.is_service for row in total.rows):
        return bill.run.scaled(factor)
    ends: tuple[End, ...] = ("value", "low", "high")
    people = total.people_usd_per_month
    costs = [cost_at(total, factor, end) - (0.0 if people is None else getattr(people, end)) for end in ends]
    if not all(math.isfinite(one) for one in costs):
        return None
    return Figure(value=costs[0], low=costs[1], high=costs[2], basis=bill.run.basis)


def _volumes(inputs: DecisionInputs, choice: str, totals: Mapping[str, Total]) -> Iterator[AnswerChange]:
    """The nearest volumes, above and below, at which the answer is another."""
    rows = [row for total in totals.values() for row in total.rows if row.is_service and row.option is not None]
    planned = sorted({point.factor for row in rows for point in row.at_volumes})
    factors = planned if rows else [float(one) for one in np.geomspace(0.01, 100.0, 33)]
    for way in ([one for one in factors if one > 1], [one for one in reversed(factors) if one < 1]):
        held = 1.0
        for factor in way:
            if (then := _answer(at_volume(inputs, totals, factor))) != choice:
                for _ in range(8):
                    middle = math.sqrt(held * factor)
                    other = _answer(at_volume(inputs, totals, middle))
                    held, factor, then = (held, middle, other) if other != choice else (middle, factor, then)
                yield AnswerChange(
                    kind="volume", subject="", now=1.0, at=factor, unit="times the stated volume", then=then
                )
                break
            held = factor


def _horizons(inputs: DecisionInputs, choice: str) -> Iterator[AnswerChange]:
    """The nearest horizons, longer and shorter, with another answer."""
    for far in (LONGEST_WEEKS, 1.0):
        if far == inputs.weeks:
            continue
        found = _first(
            inputs.weeks, far, lambda weeks: _answer(replace(inputs, weeks=weeks)), lambda one: one != choice
        )
        if found and found[1] is not None:
            yield AnswerChange(kind="horizon", subject="", now=inputs.weeks, at=found[0], unit="weeks", then=found[1])


def _worth(inputs: DecisionInputs, name: str) -> AnswerChange | None:
    """What being on another would have to be worth a month for it to be the answer."""

    def answer(premium: float) -> str | None:
        return _answer(replace(inputs, premium={**inputs.premium, name: premium}))

    found = _first(LEAST_WORTH, MOST_WORTH, answer, lambda one: one == name)
    return found and AnswerChange(kind="worth", subject=name, now=0.0, at=found[0], unit="USD a month", then=name)


def _rules(inputs: DecisionInputs, verdict: Verdict) -> Iterator[AnswerChange]:
    """Alternatives that a rule alone keeps from being the answer."""
    for one in verdict.out:
        if one.kind in ("breaks a rule", "rule not known"):
            matches = {**inputs.standing.matches, one.alternative: ()}
            lifted = replace(inputs, standing=replace(inputs.standing, matches=matches))
            if _answer(lifted) == one.alternative:
                rules = ", ".join(match.standard for match in one.rules)
                yield AnswerChange(kind="rule", subject=rules, now=0.0, at=1.0, unit="met", then=one.alternative)


def _other_models(inputs: DecisionInputs, verdict: Verdict) -> Iterator[AnswerChange]:
    """Alternatives that would be the answer if the model they put in the place of the one asked for would do."""
    for one in verdict.out:
        if one.kind == "another model":
            lifted = {name: which for name, which in inputs.instead.items() if name != one.alternative}
            if _answer(replace(inputs, instead=lifted)) == one.alternative:
                yield AnswerChange(
                    kind="another model", subject=one.alternative, now=0.0, at=1.0, unit="will do", then=one.alternative
                )


def without_people(inputs: DecisionInputs) -> str | None:
    """The answer without people's hours, neither of running nor of moving."""
    return _answer(without_hours(inputs))


def people_share(inputs: DecisionInputs, name: str) -> float | None:
    """The share of people-hours, of running and of moving, in what an alternative costs over the horizon by itself."""
    bill = inputs.bills[name]
    if bill.run is None or (bill.people is None and bill.entry.usd is None):
        return None
    months = inputs.months - (bill.entry.weeks or 0.0) / WEEKS_PER_MONTH
    hours = [figure for figure in (bill.people and bill.people.scaled(max(0.0, months)), bill.entry.usd) if figure]
    people = add_figures(hours)
    assert people is not None
    whole = people.value + bill.run.value * max(0.0, months)
    return people.value / whole if whole > 0 else None
