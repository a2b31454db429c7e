"""Decision tree, scores and their sensitivity, recommendation by size and horizon, hybrid split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.decision import DecisionStep
from tonnage.comparison.scoring import Scored, WeightFlip
from tonnage.comparison.sizes import load_sizes
from tonnage.comparison.verdict import Verdict
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.caveats import caveats, level
from tonnage.reports.comparison.charts import score_chart, sensitivity_chart
from tonnage.reports.comparison.decision_views import decision_tree
from tonnage.reports.comparison.figures import counted, money
from tonnage.reports.comparison.guidance import YES_NO, horizon_steps
from tonnage.reports.comparison.sections import Part, Section, Subheading
from tonnage.reports.comparison.verdict_words import (
    SHORT_OUT,
    change_words,
    exclusion_words,
    headline,
    reason_words,
)
from tonnage.reports.listing import Field, Fields, cell, field_table
from tonnage.reports.reasons.comparison import split_words
from tonnage.reports.wording import render_money, short
from tonnage.sizing.estimates import Figure


def summary_section(comparison: Comparison) -> Section:
    """The one answer, why, and what would change it."""
    answer = comparison.answer
    parts: list[Part] = [Paragraph(text=headline(comparison), tone="good" if answer.choice else "warning")]
    if answer.reasons:
        parts.append(Bullets(items=tuple(reason_words(comparison, one) for one in answer.reasons)))
    if answer.verdict.out:
        parts += [
            Subheading(text="Not recommended"),
            Bullets(items=tuple(exclusion_words(comparison, one) for one in answer.verdict.out)),
        ]
    changes = tuple(change_words(comparison, one) for one in answer.changes)
    parts += [
        Subheading(text="What would change it"),
        Bullets(items=changes or ("nothing that was looked at: price, people-hours, volume, horizon, rules",)),
    ]
    rows = [(comparison.title_of[name], _monthly(comparison, name)) for name in comparison.able]
    if comparison.split.worth_it:
        rows.append(("split over several", split_words(comparison.split, comparison.title_of)))
    if comparison.migration:
        weeks = [comparison.migration.weeks(end) for end in ("low", "likely", "high")]
        move = f"{weeks[1]:.0f} weeks ({weeks[0]:.0f} to {weeks[2]:.0f}), "
        hours = f"{short(comparison.migration.hours.likely)} people-hours"
        rows.append((f"migration to {comparison.migration.target}, as the file asks", move + hours))
    parts.append(Pairs(rows=tuple(rows)))
    parts += [Paragraph(text=text, tone="warning") for text in caveats(comparison)]
    return Section(key="summary", title="Summary", parts=tuple(parts))


def _monthly(comparison: Comparison, name: str) -> str:
    total = comparison.totals[name]
    people = "included" if total.people_usd_per_month else "not counted"
    model = "" if total.as_asked else ", with another model"
    guess = ", a fee estimated from its parts" if any(row.fee_estimate for row in total.rows) else ""
    spot = sorted({row.work for row in total.rows if row.option is not None and row.option.purchase == "spot"})
    bought = f", {' and '.join(spot)} on spot" if spot else ""
    return f"{money(total.usd_per_month)} a month, people {people}{bought}{model}{guess}"


def rules_words(comparison: Comparison) -> str:
    """What the rules lead to, and what that did to the answer; the answer itself is the summary's."""
    decision, answer = comparison.decision, comparison.answer
    if decision.leaf is None:
        return f"The rules are undecided, since {decision.missing} is not known; they have no part in the answer."
    leads = f"The rules lead to «{decision.leaf.say}»: {decision.leaf.because}."
    if answer.rules.kind == "names none":
        return f"{leads} They name none of the alternatives compared, and leave the answer to cost."
    if answer.rules.kind == "agrees":
        return f"{leads} The answer is among what they name: {level(comparison, answer.rules.named)}."
    stays = f"The answer stays {comparison.title_of[answer.choice]}" if answer.choice else "There is no answer"
    effect = "must be met" if decision.leaf.must else "counts only among alternatives that cost alike"
    return f"{leads} {stays}: this leaf {effect}. {against_words(comparison, answer.rules.named)}"


def against_words(comparison: Comparison, names: Sequence[str]) -> str:
    """What keeps alternatives from being the answer, a sentence each."""
    return " ".join(f"{_against(comparison, name)}." for name in names)


def _against(comparison: Comparison, name: str) -> str:
    verdict, chosen = comparison.answer.verdict, comparison.answer.verdict.chosen
    if (out := verdict.out_of(name)) is not None:
        return exclusion_words(comparison, out)
    one = next(one for one in verdict.contenders if one.alternative == name)
    said = f"{comparison.title_of[name]} costs {money(one.usd)} over {counted(verdict.weeks, 'week')}"
    if chosen is None or one.level:
        return said
    return f"{said}, {render_money(one.usd.value - chosen.usd.value)} more than the answer"


STEP: Final[Fields[DecisionStep]] = (
    Field("question", lambda one: one.question.name),
    Field("ask", lambda one: one.question.ask, title="Question", show=str, wraps=True),
    Field("answer", lambda one: one.answer, title="Answer", show=lambda answer: YES_NO[answer]),
    Field("found", lambda one: one.found, title="Found", show=str, wraps=True),
    Field("from", lambda one: one.origin, title="From", show=str, wraps=True),
)


def decision_section(comparison: Comparison) -> Section:
    """Each question with its answer and where that came from; the tree; what would change the outcome."""
    decision = comparison.decision
    flips = tuple(
        f"if {one.change}: {one.leaf.say}" if one.leaf else f"if {one.change}: undecided, {one.missing} is not known"
        for one in decision.flips
    )
    rules = decision.rules
    return Section(
        key="decision",
        title="What the rules say",
        parts=(
            Paragraph(text=rules_words(comparison), tone="plain" if decision.leaf else "warning"),
            Paragraph(
                text=f"Rule set «{rules.title}» ({rules.name}). {rules.about} Source: {rules.source}.", tone="faint"
            ),
            field_table(STEP, decision.steps),
            Subheading(text="What would lead the rules elsewhere"),
            Bullets(items=flips or ("no single other answer leads elsewhere",)),
            Subheading(text="The whole tree"),
            decision_tree(decision),
        ),
    )


def ranking_fields(comparison: Comparison) -> Fields[Scored]:
    """An alternative by its score, and how often it is first where weights and scores are drawn."""

    def first_share(one: Scored) -> float:
        return comparison.first_share[one.alternative]

    return (
        Field("thing", lambda one: one.alternative, title="Alternative", show=comparison.title_of.__getitem__),
        Field("score", lambda one: one.total, title="Score", show="{:.2f}".format, right=True),
        Field("low", lambda one: one.low),
        Field("high", lambda one: one.high),
        cell("With what is unknown at 1 and 5", lambda one: f"{one.low:.2f}–{one.high:.2f}"),
        Field("unknown", lambda one: one.unknown),
        Field(
            "first_share", first_share, title="First in draws", show=lambda share: f"{100 * share:.0f} %", right=True
        ),
        cell("Unknown", lambda one: ", ".join(one.unknown) or "none", wraps=True),
    )


def score_section(comparison: Comparison) -> Section:
    """Weights and scores, the ranking, and how far it holds."""
    request, names = comparison.request, [alternative.name for alternative in comparison.request.alternatives]
    out = [comparison.title_of[name] for name in names if name not in comparison.able]
    parts: list[Part] = [
        Paragraph(text=score_words(comparison)),
        field_table(ranking_fields(comparison), comparison.ranking),
    ]
    if (chart := score_chart(comparison)) is not None:
        parts.append(chart)
    if out and comparison.able:
        parts.append(
            Paragraph(text=f"Not ranked, because not all the work can be done there: {', '.join(out)}.", tone="warning")
        )
    parts += [
        Subheading(text="Which weights would put another first by score"),
        *((weights,) if (weights := sensitivity_chart(comparison)) is not None else ()),
        Bullets(
            items=flip_lines(comparison.flips, comparison) or ("no weight of a single criterion puts another first",)
        ),
        Paragraph(
            text=f"Draws: {request.draws:,}, seed {request.seed}. Weights log-normal around their own (sigma 0.5), "
            "judged scores one off in half of the draws, computed scores anywhere in their interval, each by itself: "
            "what would bend all judged scores one way is not in the shares.",
            tone="faint",
        ),
        Subheading(text="What the weights would pay"),
        Bullets(items=implied_lines(comparison) or ("nothing: cost has no weight, or no cost is known",)),
        Subheading(text="Who leads on which criteria"),
        Pairs(rows=tuple((part, level(comparison, alternatives)) for part, alternatives in comparison.leaders)),
        Subheading(text="Weights"),
        Pairs(rows=_weight_rows(comparison)),
    ]
    return Section(key="scores", title="Scores and sensitivity", parts=tuple(parts))


def score_words(comparison: Comparison) -> str:
    """What the scores are for, and why the first by score is not the answer where it is not."""
    said = "The scores break ties among alternatives that cost alike."
    ranking, choice = comparison.ranking, comparison.answer.choice
    if not ranking or choice is None or ranking[0].alternative == choice:
        return said
    first = ranking[0].alternative
    return (f"{said} {comparison.title_of[first]} has the highest, and the answer stays {comparison.title_of[choice]}. "
            f"{against_words(comparison, [first])}")  # fmt: skip


def _weight_rows(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Weights with the criteria that have them, heaviest first: the reader's own, then the defaults; what counts
    not."""
    names = [alternative.name for alternative in comparison.request.alternatives]
    scored = [one for one in comparison.criteria if any(one.key in comparison.scores[name] for name in names)]
    given, weights = comparison.request.weights_given, comparison.request.weights
    rows: dict[tuple[bool, float], list[str]] = {}
    for one in scored:
        if (weight := weights.get(one.key, 0.0)) > 0:
            rows.setdefault((one.key not in given, -weight), []).append(one.title)
    shown = [
        (f"{-weight:g}, {'default' if default else 'yours'}", ", ".join(titles))
        for (default, weight), titles in sorted(rows.items())
    ]
    out = [one.title for one in scored if weights.get(one.key, 0.0) > 0 and one.key not in comparison.counted]
    return (*shown, *([("not counted: not known for all", ", ".join(out))] if out else []))


def implied_lines(comparison: Comparison) -> tuple[str, ...]:
    """The price that each weight of the reader implies for one point, and that of the weighted winner's whole lead."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    given, lead = comparison.request.weights_given, comparison.answer.implied_lead
    out = []
    if lead is not None and lead.asked_usd_per_month >= 0:
        price = "any price" if lead.usd_per_month is None else f"{render_money(lead.usd_per_month)} a month more"
        asked = render_money(lead.asked_usd_per_month)
        out.append(
            f"Together the weights say that you would pay {price} for "
            f"{comparison.title_of[lead.alternative]} rather than "
            f"{comparison.title_of[lead.other]}; it costs {asked} a month more, moving not counted. Weights do not "
            "outvote the cost: state it as worth if you mean it."
        )
    out += [
        f"{criteria[one.criterion]}, weight {one.weight:g}: you would pay "
        f"{render_money(one.usd_per_month)} a month for one point more"
        for one in comparison.answer.implied
        if one.criterion in given
    ]
    return tuple(out)


def flip_lines(flips: tuple[WeightFlip, ...], comparison: Comparison) -> tuple[str, ...]:
    """Nearest first."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    return tuple(
        f"{criteria[one.criterion]}: {comparison.title_of[one.rival]} comes first with a weight {one.side} "
        f"{short(one.weight_at_tie)} (now {one.weight_now:g})"
        for one in flips
    )


def advice_section(comparison: Comparison) -> Section:
    """The answer by horizon, for sizes of organisation where they differ; the cost of each horizon."""
    horizons = comparison.request.horizon_weeks
    own = comparison.own_advice
    columns = (
        Column(title="Organisation"),
        *(Column(title=f"{name} ({counted(weeks, 'week')})", wraps=True) for name, weeks in horizons.items()),
    )
    costs = tuple(
        (comparison.title_of[alternative.name], *(_horizon_cost(one.verdict, alternative.name) for one in own))
        for alternative in comparison.request.alternatives
    )
    cost_columns = (
        Column(title="Cost of the whole horizon"),
        *(Column(title=name, align="right") for name in horizons),
    )
    parts: list[Part] = [
        Paragraph(
            text="Moving or set-up once, then running and people; today's bill until the move is done; running both at "
            "once is not counted. What is not reached within the horizon, or has not paid for itself by its end, is "
            "out. Judged scores count only among those that cost alike, with the user's weights times what "
            f"organisations of that size weigh. Factors: {load_sizes().source}.",
            tone="faint",
        ),
        Table(columns=columns, rows=_size_rows(comparison)),
        *people_note(comparison),
        Table(columns=cost_columns, rows=costs),
    ]
    parts += horizon_steps(comparison)
    return Section(key="recommendation", title="Recommendation by horizon", parts=tuple(parts))


def people_note(comparison: Comparison) -> list[Part]:
    """That people-hours decide, where they do."""
    if not comparison.answer.people_decide:
        return []
    other = comparison.answer.without_people
    said = f"Without people-hours, a judgement, {comparison.title_of[other] if other else 'none'} would be chosen."
    return [Paragraph(text=said, tone="warning")]


def _size_rows(comparison: Comparison) -> tuple[tuple[str, ...], ...]:
    """One row where all sizes get the same words, otherwise a row for each."""
    rows: dict[str, tuple[str, ...]] = {}
    for one in comparison.advice:
        choice = comparison.title_of[one.verdict.choice] if one.verdict.choice else "none"
        rows[one.size.name] = (*rows.get(one.size.name, ()), choice)
    if len(set(rows.values())) == 1:
        return (("of any size", *next(iter(rows.values()))),)
    titles = {one.size.name: one.size.title for one in comparison.advice}
    mine = comparison.size.name if comparison.size else ""
    return tuple((titles[name] + (" — this one" if name == mine else ""), *row) for name, row in rows.items())


def _horizon_cost(verdict: Verdict, alternative: str) -> str:
    out = verdict.out_of(alternative)
    found = next((one.usd for one in verdict.contenders if one.alternative == alternative), None)
    return money(found) if out is None else f"{money(out.usd)}: {SHORT_OUT[out.kind]}"


def split_section(comparison: Comparison) -> Section:
    """Which work goes where, if several are used."""
    split, titles = comparison.split, comparison.title_of
    rows = tuple((work, titles[name] if name else "none can") for work, name in split.places)
    over = counted(split.weeks, "week")
    pairs = []
    if split.single:
        pairs.append(
            (f"all on {titles[split.single]}", _spread_cost(split.single_usd, split.single_usd_per_month, over))
        )
    if split.least and split.least != split.single:
        pairs.append((f"all on {titles[split.least]}, the cheapest", f"{money(split.least_usd)} over {over}"))
    if split.worth_it:
        pairs.append(("split as above", _spread_cost(split.usd, split.usd_per_month, over)))
    notes = []
    if split.people_decide:
        where = ", ".join(f"{work} to {titles[name] if name else 'none'}" for work, name in split.without_people)
        notes.append(Paragraph(text=f"Without people-hours, a judgement, it would go: {where}.", tone="warning"))
    return Section(
        key="hybrid",
        title="Hybrid split",
        parts=(
            Paragraph(text=_sentence(split_words(split, titles)), tone="good" if split.worth_it else "plain"),
            *notes,
            Table(columns=(Column(title="Work"), Column(title="Goes to")), rows=rows),
            Pairs(rows=tuple(pairs)),
        ),
    )


def _spread_cost(usd: Figure | None, usd_per_month: Figure | None, over: str) -> str:
    return f"{money(usd)} over {over}; {money(usd_per_month)} a month once there"


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
