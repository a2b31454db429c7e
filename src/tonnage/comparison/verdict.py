"""One answer: must-haves first, then the cost of the whole horizon, then judgement among those that cost alike.

Never recommended: what breaks a must-have, what is not reached within the horizon, and a move that has not paid for
itself by its end. Judgement decides only among things that are level in cost, and at most `MOST_FOR_JUDGEMENT` times
the cheapest; a reader who would pay more for an aspect says how much (`worth`), and that counts as money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Literal

from tonnage.comparison.aspects import MONEY_ASPECTS
from tonnage.comparison.compliance import Match, Standing
from tonnage.comparison.horizons import WEEKS_PER_MONTH, Bill, horizon_cost
from tonnage.comparison.reaching import WhyNot
from tonnage.comparison.scoring import Scores, common_aspects, weighted
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
    "never pays back",
]
Ground = Literal["nothing left", "only one", "cost", "worth", "preference", "judgement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """What the leaf of the rules says of the things: `things` None: nothing. `must`: all others are out; else it
    counts among those that are level in cost."""

    leaf: str = ""
    model: str = ""  # that the thing would do it with instead
    things: tuple[str, ...] | None = None
    must: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """All that a verdict rests on. Change one part and decide again to see what would change the answer."""

    bills: Mapping[str, Bill]
    lacking: Mapping[str, tuple[str, WhyNot]]  # things that cannot do some work: (the work, why not)
    standing: Standing
    preference: Preference
    scores: Scores
    weights: Mapping[str, float]
    worth: Mapping[str, float]  # dollars a month that one point of an aspect is worth to the reader
    origin: str | None  # where the work runs today
    weeks: float
    instead: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # done with another model: (the work, which)
    premium: Mapping[str, float] = field(default_factory=dict)  # dollars a month for being on a thing, beside `worth`

    @property
    def months(self) -> float:
        return self.weeks / WEEKS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A thing that is not in the running and the first must-have that it fails. `usd`: its cost of the horizon, where
    known; `leaf`: of the rules, that leaves it out; `weeks`: to get there, or until the move has paid for itself
    (None: never)."""

    thing: str
    kind: OutKind
    usd: Figure | None = None
    work: str = ""
    why: WhyNot | None = None
    leaf: str = ""
    model: str = ""  # that the thing would do it with instead
    rules: tuple[Match, ...] = ()
    weeks: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A thing in the running. `net_usd`: its cost less what the reader says that its aspects are worth. `level`: not
    told apart from the cheapest by cost. `score`: judged, 1 to 5, on aspects known of all that are level."""

    thing: str
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
    out: tuple[Exclusion, ...]

    @property
    def chosen(self) -> Contender | None:
        return next((one for one in self.contenders if one.thing == self.choice), None)

    @property
    def runner_up(self) -> Contender | None:
        """The cheapest of the others."""
        return next((one for one in self.contenders if one.thing != self.choice), None)

    def out_of(self, thing: str) -> Exclusion | None:
        """Why a thing is not in the running; None where it is."""
        return next((one for one in self.out if one.thing == thing), None)


def reach_verdict(grounds: Grounds) -> Verdict:
    """The answer that the grounds give."""
    costs = {name: _cost(grounds, name) for name in grounds.bills}
    out = [one for name in grounds.bills if (one := _must_haves(grounds, name, costs[name])) is not None]
    gone = {one.thing for one in out}
    running = []
    for name, usd in costs.items():
        if usd is not None and name not in gone:
            running.append(Contender(thing=name, usd=usd, net_usd=_less(usd, _worth_usd(grounds, name))))
    running.sort(key=lambda one: (one.net_usd.value, one.thing))
    stay = next((one for one in running if one.thing == grounds.origin), None)
    if stay is not None:
        out += [_no_return(grounds, one) for one in running if one.net_usd.value > stay.net_usd.value]
        running = [one for one in running if one.net_usd.value <= stay.net_usd.value]
    if not running:
        return Verdict(weeks=grounds.weeks, choice=None, ground="nothing left", contenders=(), out=tuple(out))
    contenders = _judge(grounds, running)
    choice, ground = _choose(grounds, contenders)
    return Verdict(weeks=grounds.weeks, choice=choice, ground=ground, contenders=contenders, out=tuple(out))


def level_in_cost(cheapest: Figure, other: Figure) -> bool:
    """Whether cost does not tell them apart: each expected cost lies in the other's interval, and within the limit.

    >>> low, near = Figure(value=100.0, low=60.0, high=160.0), Figure(value=120.0, low=80.0, high=200.0)
    >>> level_in_cost(low, near), level_in_cost(low, near.scaled(1.2))
    (True, False)
    """
    within = other.low <= cheapest.value and other.value <= cheapest.high
    return within and other.value <= MOST_FOR_JUDGEMENT * cheapest.value


def _cost(grounds: Grounds, name: str) -> Figure | None:
    origin = grounds.origin
    today = grounds.bills[origin] if origin is not None and origin != name else None
    return horizon_cost(grounds.bills[name], grounds.weeks, today=today)


def _worth_usd(grounds: Grounds, name: str) -> float:
    """Dollars over the horizon that the reader's worths give a thing for its points above 1; unknown counts as 1."""
    scores = grounds.scores.get(name, {})
    a_month = sum(usd * (scores[key].value - 1.0) for key, usd in grounds.worth.items() if key in scores)
    return (a_month + grounds.premium.get(name, 0.0)) * grounds.months


def _less(usd: Figure, amount: float) -> Figure:
    return replace(usd, value=usd.value - amount, low=usd.low - amount, high=usd.high - amount)


def _must_haves(grounds: Grounds, name: str, usd: Figure | None) -> Exclusion | None:
    """The first must-have that a thing fails: the work, its cost, its model, the rules, the time."""
    if name in grounds.lacking:
        work, why = grounds.lacking[name]
        return Exclusion(thing=name, kind="cannot do the work", work=work, why=why)
    if usd is None:
        return Exclusion(thing=name, kind="cost not known")
    if name in grounds.instead:
        work, say = grounds.instead[name]
        return Exclusion(thing=name, kind="another model", usd=usd, work=work, model=say)
    unmet = tuple(one for one in grounds.standing.matches[name] if one.met is not True)
    if unmet:
        kind: OutKind = "breaks a rule" if any(one.met is False for one in unmet) else "rule not known"
        return Exclusion(thing=name, kind=kind, usd=usd, rules=unmet)
    preferred = grounds.preference
    if preferred.must and preferred.things is not None and name not in preferred.things:
        return Exclusion(thing=name, kind="excluded by the rules", usd=usd, leaf=preferred.leaf)
    weeks = grounds.bills[name].entry.weeks
    if weeks is not None and weeks > grounds.weeks:
        return Exclusion(thing=name, kind="not reached in time", usd=usd, weeks=weeks)
    return None


def _no_return(grounds: Grounds, one: Contender) -> Exclusion:
    return Exclusion(thing=one.thing, kind="never pays back", usd=one.usd, weeks=weeks_to_return(grounds, one.thing))


def weeks_to_return(grounds: Grounds, name: str) -> float | None:
    """The horizon from which a move costs no more than staying; None: none, each month costs as much or more."""
    bill, origin = grounds.bills[name], grounds.bills[grounds.origin] if grounds.origin is not None else None
    there, here = bill.usd_per_month, None if origin is None else origin.usd_per_month
    if there is None or here is None or grounds.origin is None:
        return None
    worth = (_worth_usd(grounds, name) - _worth_usd(grounds, grounds.origin)) / grounds.months
    saved = here.value - there.value + worth
    if saved <= 0:
        return None
    moving, once = bill.entry.weeks or 0.0, 0.0 if bill.entry.usd is None else bill.entry.usd.value
    return moving + (once - worth * moving / WEEKS_PER_MONTH) / saved * WEEKS_PER_MONTH


def _judge(grounds: Grounds, running: Sequence[Contender]) -> tuple[Contender, ...]:
    """The contenders with who is level with the cheapest, and the judged scores of those."""
    level = [one.thing for one in running if level_in_cost(running[0].net_usd, one.net_usd)] or [running[0].thing]
    weights = judged_weights(grounds)
    scores: dict[str, float] = {}
    if len(level) > 1 and common_aspects(grounds.scores, weights, level):
        scores = {one.thing: one.total for one in weighted(grounds.scores, weights, level)}
    return tuple(replace(one, level=one.thing in level, score=scores.get(one.thing)) for one in running)


def judged_weights(grounds: Grounds) -> dict[str, float]:
    """The weights less those of what is counted as money already."""
    return {key: weight for key, weight in grounds.weights.items() if key not in MONEY_ASPECTS | grounds.worth.keys()}


def _choose(grounds: Grounds, contenders: Sequence[Contender]) -> tuple[str, Ground]:
    cheapest = contenders[0].thing
    level = [one for one in contenders if one.level]
    by_usd = min(contenders, key=lambda one: (one.usd.value, one.thing)).thing
    if len(contenders) == 1:
        return cheapest, "only one"
    if len(level) == 1:
        return cheapest, "cost" if by_usd == cheapest else "worth"
    named = grounds.preference.things
    preferred = [one for one in level if named is not None and one.thing in named]
    if preferred and len(preferred) < len(level):
        if len(preferred) == 1:
            return preferred[0].thing, "preference"
        level = preferred
    if any(one.score is None for one in level):
        return level[0].thing, "cost"
    best = max(one.score for one in level if one.score is not None)
    return next(one.thing for one in level if one.score == best), "judgement"
