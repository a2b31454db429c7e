"""One answer: must-haves first, then the cost of the whole horizon, then judgement among those that cost alike.

Never recommended: what breaks a must-have, what is not reached within the horizon, and a move that has not paid for
itself by its end. Judgement decides only among alternatives that are level in cost, and at most `MOST_FOR_JUDGEMENT`
times
the cheapest; a reader who would pay more for a criterion says how much (`worth`), and that counts as money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Literal

from tonnage.comparison.compliance import ComplianceStanding, Match
from tonnage.comparison.criteria import MONEY_CRITERIA
from tonnage.comparison.horizons import WEEKS_PER_MONTH, Bill, Payback, horizon_cost, payback
from tonnage.comparison.reaching import WhyNot
from tonnage.comparison.scoring import Scores, common_criteria, weighted
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

MOST_FOR_JUDGEMENT: Final = 1.3  # times the cheapest's cost that judgement alone may choose: a judgement of ours
OutKind = Literal[
    "cannot do the work",
    "another model",
    "cost not known",
    "breaks a rule",
    "rule not known",
    "excluded by the rules",
    "not reached in time",
    "not paid back in time",
]
Ground = Literal["nothing left", "only one", "cost", "worth", "preference", "judgement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """What the leaf of the rules says of the alternatives: `alternatives` None: nothing. `must`: all others are out;
    else it
    counts among those that are level in cost."""

    leaf: str = ""
    model: str = ""  # that the alternative would do it with instead
    alternatives: tuple[str, ...] | None = None
    must: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInputs:
    """All that a verdict rests on. Change one part and decide again to see what would change the answer."""

    bills: Mapping[str, Bill]
    lacking: Mapping[str, tuple[str, WhyNot]]  # alternatives that cannot do some work: (the work, why not)
    standing: ComplianceStanding
    preference: Preference
    scores: Scores
    weights: Mapping[str, float]
    worth: Mapping[str, float]  # dollars a month that one point of a criterion is worth to the reader
    origin: str | None  # where the work runs today
    weeks: float
    instead: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # done with another model: (the work, which)
    premium: Mapping[str, float] = field(
        default_factory=dict
    )  # dollars a month for being on an alternative, beside `worth`

    @property
    def months(self) -> float:
        return self.weeks / WEEKS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """An alternative that is not in the running and the first must-have that it fails. `usd`: its cost of the
    horizon, where
    known; `leaf`: of the rules, that leaves it out; `weeks`: to get there, or until the move has paid for itself
    (None: never)."""

    alternative: str
    kind: OutKind
    usd: Figure | None = None
    work: str = ""
    why: WhyNot | None = None
    leaf: str = ""
    model: str = ""  # that the alternative would do it with instead
    rules: tuple[Match, ...] = ()
    weeks: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """An alternative in the running. `net_usd`: its cost less what the reader says that its criteria are worth.
    `level`: not
    distinguishable from the cheapest by cost. `score`: judged, 1 to 5, on criteria known of all that are level."""

    alternative: str
    usd: Figure
    net_usd: Figure
    level: bool = False
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one horizon. `choice` None: nothing is left, and `out` says why of each."""

    weeks: float
    choice: str | None
    ground: Ground
    contenders: tuple[Contender, ...]  # cheapest first
    out: tuple[RuledOut, ...]

    @property
    def chosen(self) -> Contender | None:
        return next((one for one in self.contenders if one.alternative == self.choice), None)

    @property
    def runner_up(self) -> Contender | None:
        """The cheapest of the others."""
        return next((one for one in self.contenders if one.alternative != self.choice), None)

    def out_of(self, alternative: str) -> RuledOut | None:
        """Why an alternative is not in the running; None where it is."""
        return next((one for one in self.out if one.alternative == alternative), None)


def decide_verdict(inputs: DecisionInputs) -> Verdict:
    """The answer that the inputs give."""
    costs = {name: _cost(inputs, name) for name in inputs.bills}
    out = [one for name in inputs.bills if (one := _must_haves(inputs, name, costs[name])) is not None]
    gone = {one.alternative for one in out}
    running = []
    for name, usd in costs.items():
        if usd is not None and name not in gone:
            running.append(Contender(alternative=name, usd=usd, net_usd=_less(usd, _worth_usd(inputs, name))))
    running.sort(key=lambda one: (one.net_usd.value, one.alternative))
    stay = next((one for one in running if one.alternative == inputs.origin), None)
    if stay is not None:
        out += [_no_return(inputs, one) for one in running if one.net_usd.value > stay.net_usd.value]
        running = [one for one in running if one.net_usd.value <= stay.net_usd.value]
    if not running:
        return Verdict(weeks=inputs.weeks, choice=None, ground="nothing left", contenders=(), out=tuple(out))
    contenders = _judge(inputs, running)
    choice, ground = _choose(inputs, contenders)
    return Verdict(weeks=inputs.weeks, choice=choice, ground=ground, contenders=contenders, out=tuple(out))


def level_in_cost(cheapest: Figure, other: Figure) -> bool:
    """Whether cost does not tell them apart: each expected cost lies in the other's interval, and within the limit.

    >>> low, near = Figure(value=100.0, low=60.0, high=160.0), Figure(value=120.0, low=80.0, high=200.0)
    >>> level_in_cost(low, near), level_in_cost(low, near.scaled(1.2))
    (True, False)
    """
    within = other.low <= cheapest.value and other.value <= cheapest.high
    return within and other.value <= MOST_FOR_JUDGEMENT * cheapest.value


def _cost(inputs: DecisionInputs, name: str) -> Figure | None:
    origin = inputs.origin
    today = inputs.bills[origin] if origin is not None and origin != name else None
    return horizon_cost(inputs.bills[name], inputs.weeks, today=today)


def _worth_usd(inputs: DecisionInputs, name: str) -> float:
    """Dollars over the horizon that the reader's worths give an alternative for its points above 1; unknown counts
    as 1."""
    scores = inputs.scores.get(name, {})
    a_month = sum(usd * (scores[key].value - 1.0) for key, usd in inputs.worth.items() if key in scores)
    return (a_month + inputs.premium.get(name, 0.0)) * inputs.months


def _less(usd: Figure, amount: float) -> Figure:
    return replace(usd, value=usd.value - amount, low=usd.low - amount, high=usd.high - amount)


def _must_haves(inputs: DecisionInputs, name: str, usd: Figure | None) -> RuledOut | None:
    """The first must-have that an alternative fails: the work, its cost, its model, the rules, the time."""
    if name in inputs.lacking:
        work, why = inputs.lacking[name]
        return RuledOut(alternative=name, kind="cannot do the work", work=work, why=why)
    if usd is None:
        return RuledOut(alternative=name, kind="cost not known")
    if name in inputs.instead:
        work, say = inputs.instead[name]
        return RuledOut(alternative=name, kind="another model", usd=usd, work=work, model=say)
    unmet = tuple(one for one in inputs.standing.matches[name] if one.met is not True)
    if unmet:
        kind: OutKind = "breaks a rule" if any(one.met is False for one in unmet) else "rule not known"
        return RuledOut(alternative=name, kind=kind, usd=usd, rules=unmet)
    preferred = inputs.preference
    if preferred.must and preferred.alternatives is not None and name not in preferred.alternatives:
        return RuledOut(alternative=name, kind="excluded by the rules", usd=usd, leaf=preferred.leaf)
    weeks = inputs.bills[name].entry.weeks
    if weeks is not None and weeks > inputs.weeks:
        return RuledOut(alternative=name, kind="not reached in time", usd=usd, weeks=weeks)
    return None


def _no_return(inputs: DecisionInputs, one: Contender) -> RuledOut:
    weeks = weeks_to_return(inputs, one.alternative)
    return RuledOut(alternative=one.alternative, kind="not paid back in time", usd=one.usd, weeks=weeks)


def weeks_to_return(inputs: DecisionInputs, name: str) -> float | None:
    """The horizon from which a move costs no more than staying; None: none, each month costs as much or more."""
    found = payback_of(inputs, name)
    return None if found is None else found.weeks


def payback_of(inputs: DecisionInputs, name: str) -> Payback | None:
    """When a move from where the work runs today has paid for itself; None where it runs nowhere, or a cost is not
    known."""
    origin = None if inputs.origin is None else inputs.bills[inputs.origin]
    there, here = inputs.bills[name].usd_per_month, None if origin is None else origin.usd_per_month
    if there is None or here is None or inputs.origin is None:
        return None
    worth = (_worth_usd(inputs, name) - _worth_usd(inputs, inputs.origin)) / inputs.months
    return payback(inputs.bills[name].entry, here, there, worth_usd_per_month=worth)


def without_hours(inputs: DecisionInputs) -> DecisionInputs:
    """The inputs as without people's hours, neither of running nor of moving."""
    bills = {
        name: replace(bill, people=None, entry=replace(bill.entry, usd=None)) for name, bill in inputs.bills.items()
    }
    return replace(inputs, bills=bills)


def _judge(inputs: DecisionInputs, running: Sequence[Contender]) -> tuple[Contender, ...]:
    """The contenders with who is level with the cheapest, and the judged scores of those."""
    level = [one.alternative for one in running if level_in_cost(running[0].net_usd, one.net_usd)] or [
        running[0].alternative
    ]
    weights = judged_weights(inputs)
    scores: dict[str, float] = {}
    if len(level) > 1 and common_criteria(inputs.scores, weights, level):
        scores = {one.alternative: one.total for one in weighted(inputs.scores, weights, level)}
    return tuple(replace(one, level=one.alternative in level, score=scores.get(one.alternative)) for one in running)


def judged_weights(inputs: DecisionInputs) -> dict[str, float]:
    """The weights less those of what is counted as money already."""
    return {key: weight for key, weight in inputs.weights.items() if key not in MONEY_CRITERIA | inputs.worth.keys()}


def _choose(inputs: DecisionInputs, contenders: Sequence[Contender]) -> tuple[str, Ground]:
    cheapest = contenders[0].alternative
    level = [one for one in contenders if one.level]
    by_usd = min(contenders, key=lambda one: (one.usd.value, one.alternative)).alternative
    if len(contenders) == 1:
        return cheapest, "only one"
    if len(level) == 1:
        return cheapest, "cost" if by_usd == cheapest else "worth"
    named = inputs.preference.alternatives
    preferred = [one for one in level if named is not None and one.alternative in named]
    if preferred and len(preferred) < len(level):
        if len(preferred) == 1:
            return preferred[0].alternative, "preference"
        level = preferred
    if any(one.score is None for one in level):
        return level[0].alternative, "cost"
    best = max(one.score for one in level if one.score is not None)
    return next(one.alternative for one in level if one.score == best), "judgement"
