"""Why the answer is the answer, as values: what decided, what the move means, what rules and people-hours have to do
with it. Reports put them into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tonnage.comparison.verdict import Contender, DecisionInputs, Verdict, judged_weights, weeks_to_return
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

MOSTLY_PEOPLE: Final = 0.8  # share of the cost from which the report says so
MOST_LEADS: Final = 3
ReasonKind = Literal[
    "costs less", "judged better", "preferred", "worth more", "only one left", "stays", "moves", "meets the rules",
    "people-hours",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceReason:
    """One reason. `usd`, `rival_usd`: over the horizon; `weeks`: until a move has paid for itself (None: never);
    `leads`: criteria in which the choice is judged better, in points; `share`: of people-hours in the cost."""

    kind: ReasonKind
    rival: str | None = None
    usd: Figure | None = None
    rival_usd: Figure | None = None
    weeks: float | None = None
    leads: tuple[tuple[str, float], ...] = ()
    share: float | None = None
    rules: tuple[str, ...] = ()


def reasons_of(
    inputs: DecisionInputs, verdict: Verdict, without_people: str | None, people_share: float | None
) -> tuple[ChoiceReason, ...]:
    """What decided first; then the move, people-hours and rules, as far as they have a part in it."""
    chosen = verdict.chosen
    if chosen is None:
        return ()
    moving = [] if inputs.origin is None else [_moving(inputs, verdict, chosen)]
    if verdict.runner_up is None and any(one.kind == "not paid back in time" for one in verdict.out):
        out = moving
    else:
        out = [_decisive(inputs, verdict, chosen), *moving]
    if without_people != verdict.choice or (people_share or 0.0) >= MOSTLY_PEOPLE:
        rival = None if without_people == verdict.choice else without_people
        out.append(ChoiceReason(kind="people-hours", rival=rival, share=people_share))
    if inputs.standing.needs:
        out.append(ChoiceReason(kind="meets the rules", rules=inputs.standing.needs))
    return tuple(out)


def _decisive(inputs: DecisionInputs, verdict: Verdict, chosen: Contender) -> ChoiceReason:
    rival = verdict.runner_up
    if rival is None:
        return ChoiceReason(kind="only one left", usd=chosen.usd)
    kinds: dict[str, ReasonKind] = {"worth": "worth more", "preference": "preferred", "judgement": "judged better"}
    leads: tuple[tuple[str, float], ...] = ()
    if verdict.ground == "worth":
        leads = _leads(inputs, chosen, rival, inputs.worth)
    elif verdict.ground == "judgement":
        level = [one for one in verdict.contenders if one.level and one.alternative != chosen.alternative]
        rival = max(level, key=lambda one: (one.score or 0.0, -one.usd.value))
        leads = _leads(inputs, chosen, rival, judged_weights(inputs))
    kind = kinds.get(verdict.ground, "costs less")
    return ChoiceReason(kind=kind, rival=rival.alternative, usd=chosen.usd, rival_usd=rival.usd, leads=leads)


def _leads(
    inputs: DecisionInputs, chosen: Contender, rival: Contender, weights: Mapping[str, float]
) -> tuple[tuple[str, float], ...]:
    """Criteria in which the choice leads, by weight x points, most first."""
    mine, other = inputs.scores[chosen.alternative], inputs.scores[rival.alternative]
    found = [(key, mine[key].value - other[key].value) for key, weight in weights.items()
             if weight > 0 and key in mine and key in other]  # fmt: skip
    ahead = [one for one in found if one[1] > 0]
    return tuple(sorted(ahead, key=lambda one: (-one[1] * weights[one[0]], one[0]))[:MOST_LEADS])


def _moving(inputs: DecisionInputs, verdict: Verdict, chosen: Contender) -> ChoiceReason:
    """Staying: the nearest move that does not pay; moving: after how long it has paid."""
    origin = inputs.origin
    if chosen.alternative != origin:
        entry = inputs.bills[chosen.alternative].entry
        return ChoiceReason(
            kind="moves", rival=origin, usd=entry.usd, weeks=weeks_to_return(inputs, chosen.alternative)
        )
    moves = [one for one in verdict.out if one.kind == "not paid back in time" and one.usd is not None]
    if not moves:
        return ChoiceReason(kind="stays")
    near = min(moves, key=lambda one: (one.usd.value if one.usd else 0.0, one.alternative))
    return ChoiceReason(kind="stays", rival=near.alternative, usd=chosen.usd, rival_usd=near.usd, weeks=near.weeks)
