"""What a reader must know before acting on the summary: what its grounds are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.scoring import learn_apart
from tonnage.reports.comparison.figures import money
from tonnage.reports.comparison.moving import payback_words

MOSTLY_PEOPLE: Final = 0.8  # share of the monthly cost from which a reader is told


def caveats(comparison: Comparison) -> list[str]:
    """What a reader must know before acting on the headline: rules not met, a move that does not pay, grounds apart."""
    out = []
    standing, titles = comparison.standing, comparison.title_of
    doubtful = [name for name in titles if standing.needs and standing.meets(name) is not True]
    if doubtful:
        said = "; ".join(f"{titles[name]}: {standing.why_not(name)}" for name in doubtful)
        out.append(f"Left out of every choice, because a rule is not known to be met. {said}.")
    size = comparison.size.name if comparison.size else "mid-size"
    own = [one for one in comparison.advice if one.size.name == size]
    last, move = own[-1], comparison.request.move
    if move is not None and last.choice is not None and last.choice != move.origin:
        stay, go = last.costs[move.origin], last.costs[last.choice]
        entry = comparison.entries[last.choice].usd
        if stay is not None and go is not None and go.value > stay.value:
            when = payback_words(
                entry, comparison.totals[move.origin].usd_per_month, comparison.totals[last.choice].usd_per_month
            )
            out.append(
                f"Moving to {titles[last.choice]} costs {money(go)} within {last.weeks:g} weeks, staying on "
                f"{titles[move.origin]} {money(stay)}: the score prefers the move for what is judged, not for money "
                f"within that time. It pays for itself {when}."
            )
    out += _grounds(comparison)
    leaders = [set(things) for _, things in comparison.leaders]
    if leaders and not set.intersection(*leaders):
        said = "; ".join(f"{part}: {level(comparison, things)}" for part, things in comparison.leaders)
        out.append(f"The grounds disagree on who leads. By {said}.")
    return out


def level(comparison: Comparison, things: Sequence[str]) -> str:
    """Those that lead together, by their titles."""
    names = [comparison.title_of[thing] for thing in things]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _grounds(comparison: Comparison) -> list[str]:
    """Where rules and score part, where hours that are judged make the cost, where methods differ."""
    out, titles = [], comparison.title_of
    best = comparison.ranking[0].thing if comparison.ranking else None
    if comparison.chosen is not None and best is not None and comparison.chosen != best:
        out.append(
            f"The rules choose {titles[comparison.chosen]}, the score {titles[best]}: the rules stop at the first "
            "answer that decides, the score weighs every aspect."
        )
    shares = {}
    for name in comparison.able:
        total, people = comparison.totals[name].usd_per_month, comparison.totals[name].people_usd_per_month
        if total is not None and people is not None and total.value > 0:
            shares[name] = people.value / total.value
    high = {name: share for name, share in shares.items() if share >= MOSTLY_PEOPLE}
    if high:
        said = ", ".join(f"{titles[name]} {100 * share:.0f} %" for name, share in high.items())
        out.append(
            f"People-hours, a judgement, make most of the monthly cost ({said}): give hours of your own before the "
            "cost decides."
        )
    if learn_apart(comparison.request.things, comparison.totals):
        out.append(
            "They learn different models of one table: accuracy is not compared, measure it on your own data. A pass "
            "over the rows is not the same work for each: compare times, not rates."
        )
    return out
