"""The verdict in words: the one answer, why, what is out, what would change it."""

from __future__ import annotations

from typing import Final

from tonnage.comparison.changes import AnswerChange
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.horizons import WEEKS_PER_MONTH
from tonnage.comparison.reasons import ChoiceReason
from tonnage.comparison.verdict import OutKind, RuledOut, payback_of
from tonnage.reports.comparison.figures import UNKNOWN, counted, money, volume
from tonnage.reports.reasons.why_not import why_not_words
from tonnage.reports.wording import render_money, short

CENT: Final = 0.005  # dollars below which two costs are printed alike
SHORT_OUT: Final[dict[OutKind, str]] = {
    "cannot do the work": "cannot do all the work",
    "another model": "with another model than asked for",
    "cost not known": "cost not known",
    "breaks a rule": "breaks a must-have",
    "rule not known": "a must-have is not known to be met",
    "excluded by the rules": "left out by the rules",
    "not reached in time": "not reached within the horizon",
    "not paid back in time": "the move does not pay back within the horizon",
}


def headline(comparison: Comparison) -> str:
    """The one answer with its cost."""
    verdict = comparison.answer.verdict
    weeks = counted(verdict.weeks, "week")
    chosen = verdict.chosen
    if chosen is None:
        return f"None of the alternatives compared can be recommended over {weeks}: each fails a must-have."
    return f"Choose {comparison.title_of[chosen.alternative]}: {money(chosen.usd)} over {weeks}{_included(comparison)}."


def _included(comparison: Comparison) -> str:
    if comparison.request.organisation.usd_per_hour is None:
        return ", people and moving not counted (organisation.usd_per_hour is not stated)"
    return ", moving and people included"


def reason_words(comparison: Comparison, reason: ChoiceReason) -> str:
    """One reason as a sentence."""
    titles, answer = comparison.title_of, comparison.answer
    chosen = titles[answer.choice or ""]
    rival = titles.get(reason.rival or "", "")
    weeks = counted(answer.verdict.weeks, "week")
    criteria = {one.key: one.title for one in comparison.criteria}
    leads = ", ".join(f"{criteria[key]} (+{lead:.1f})" for key, lead in reason.leads)
    apart = _apart(reason)
    if reason.kind == "costs less":
        return f"It costs least: {rival} costs {money(reason.rival_usd)} over {weeks}, {apart}."
    if reason.kind == "judged better":
        return (f"Cost does not tell it from {rival} ({money(reason.rival_usd)}, {apart}); it is judged better"
                f"{' in ' + leads if leads else ' by the weights'}.")  # fmt: skip
    if reason.kind == "preferred":
        return f"Cost does not tell it from {rival} ({money(reason.rival_usd)}, {apart}); the rules prefer it."
    if reason.kind == "worth more":
        return f"What you say its lead is worth ({leads}) outweighs its cost beside {rival}, {apart}."
    if reason.kind == "only one left":
        return "It is the only one that meets every must-have."
    if reason.kind == "moves":
        once = f"Moving there from {rival} costs {money(reason.usd)} once"
        if (stay := answer.verdict.out_of(reason.rival or "")) is not None:
            return f"{once}; staying is no way ({stay.kind})."
        return f"{once}; the move {_returns(reason.weeks, answer.verdict.weeks)}."
    if reason.kind == "stays":
        if not reason.rival:
            return f"Work runs on {chosen} already: nothing has to move."
        return (f"Work runs there already. {rival} would cost {money(reason.rival_usd)} over {weeks}, moving included, "
                f"{apart}: the move {_returns(reason.weeks, answer.verdict.weeks)}.")  # fmt: skip
    if reason.kind == "people-hours":
        share = "" if reason.share is None else f"{100 * reason.share:.0f} % of its cost are people-hours, a judgement"
        if answer.people_decide:
            other = (
                f"without them {titles[reason.rival]} would be chosen" if reason.rival else "without them none would"
            )
            share = f"{share or 'People-hours, a judgement, count'}: they decide, {other}"
        return f"{share}. Give hours of your own before you act."
    return f"It is known to meet the rules: {comparison.standing.titles}."


def _apart(reason: ChoiceReason) -> str:
    """How far two costs are apart: the rival's beside the choice's."""
    if reason.usd is None or reason.rival_usd is None:
        return UNKNOWN
    more = reason.rival_usd.value - reason.usd.value
    if abs(more) < CENT:
        return "as much"
    share = "" if reason.usd.value <= 0 else f" ({abs(more) / reason.usd.value:.0%})".replace("%", " %")
    return f"{render_money(abs(more))}{share} {'more' if more >= 0 else 'less'}"


def _span(weeks: float) -> str:
    """Weeks, and months besides where there are many."""
    said = counted(round(weeks), "week")
    return said if weeks < 26 else f"{said} ({short(weeks / WEEKS_PER_MONTH)} months)"


def _returns(weeks: float | None, horizon_weeks: float) -> str:
    """When a move pays back, beside the horizon; `weeks` None: never."""
    horizon = counted(horizon_weeks, "week")
    if weeks is None:
        return "never pays back: each month costs as much or more"
    if weeks > horizon_weeks:
        return f"does not pay back within {horizon}, only after {_span(weeks)}"
    return f"pays back after {_span(weeks)} of the {horizon}"


def payback_words(comparison: Comparison, target: str) -> str:
    """When the move to an alternative has paid back, with the ends of its interval, beside the horizon."""
    inputs = comparison.answer.inputs
    found = payback_of(inputs, target)
    if found is None:
        return UNKNOWN
    ends = ["never" if one is None else f"{round(one):,}" for one in (found.low, found.high)]
    hours = "" if inputs.bills[target].entry.usd is not None else "; the hours of moving are not counted"
    return f"{_returns(found.weeks, inputs.weeks)}; 80 % interval in weeks: {ends[0]} to {ends[1]}{hours}"


def change_words(comparison: Comparison, change: AnswerChange) -> str:
    """One change and where it leads."""
    titles = comparison.title_of
    then = titles[change.then] if change.then is not None else "none of them"
    subject = titles.get(change.subject, change.subject)
    if change.kind == "price of the choice":
        said = f"running {subject} costs over {render_money(change.at)} a month (now {render_money(change.now)})"
    elif change.kind == "price of another":
        said = f"running {subject} costs under {render_money(change.at)} a month (now {render_money(change.now)})"
    elif change.kind == "people-hours":
        hours = comparison.request.organisation.usd_per_hour or 1.0
        said = (f"running {subject} takes over {short(change.at / hours)} people-hours a month "
                f"(taken: {short(change.now / hours)})")  # fmt: skip
    elif change.kind == "volume":
        side = "above" if change.at > 1 else "below"
        said = f"the volume is {side} {volume(float(f'{change.at:.3g}'))} the stated one"
    elif change.kind == "horizon":
        side = "longer" if change.at > change.now else "shorter"
        said = f"you decide over {side} than {counted(round(change.at), 'week')} (now {change.now:g})"
    elif change.kind == "worth":
        said = f"being on {subject} is worth {render_money(change.at)} a month to you beyond its cost (worth)"
    elif change.kind == "another model":
        said = f"{_instead(comparison, change.subject)} will do as well (not measured; name it in buy.token_models)"
    else:
        said = f"{then} is shown to meet {subject}"
    return f"{then}, if {said}"


def _instead(comparison: Comparison, alternative: str) -> str:
    return comparison.answer.inputs.instead[alternative][1]


def exclusion_words(comparison: Comparison, one: RuledOut) -> str:
    """Why an alternative is out."""
    title, weeks = comparison.title_of[one.alternative], counted(comparison.answer.verdict.weeks, "week")
    if one.kind == "cannot do the work":
        return f"{title}: {one.work}: {why_not_words(one.why)}"
    if one.kind == "another model":
        return (f"{title}: {one.work} not with the model asked for; the nearest there is {one.model}, all in all "
                f"{money(one.usd)} over {weeks}")  # fmt: skip
    if one.kind == "cost not known":
        return f"{title}: its cost is not known"
    if one.kind in ("breaks a rule", "rule not known"):
        return f"{title}: {'; '.join(match.describe() for match in one.rules)}"
    if one.kind == "excluded by the rules":
        return (
            f"{title}: the rules leave it out ({comparison.decision.leaf.because if comparison.decision.leaf else ''})"
        )
    if one.kind == "not reached in time":
        return f"{title}: takes {short(one.weeks or 0.0)} weeks to get there, the horizon has {weeks}"
    returns = _returns(one.weeks, comparison.answer.verdict.weeks)
    return f"{title}: {money(one.usd)} over {weeks}; the move {returns}"
