"""Decision tree, scores and their sensitivity, recommendation by size and horizon, hybrid split."""

from __future__ import annotations

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.recommendation import load_sizes
from tonnage.comparison.scoring import WeightFlip
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.caveats import caveats, level
from tonnage.reports.comparison.charts import score_chart, sensitivity_chart
from tonnage.reports.comparison.decision_views import decision_tree
from tonnage.reports.comparison.figures import counted, money
from tonnage.reports.comparison.guidance import horizon_steps
from tonnage.reports.comparison.sections import Part, Section, Subheading
from tonnage.reports.wording import short


def summary_section(comparison: Comparison) -> Section:
    """The answer first."""
    parts: list[Part] = [Paragraph(text=headline(comparison), tone="good")]
    rows: list[tuple[str, str]] = [("decision tree", decision_words(comparison))]
    if comparison.ranking:
        best = comparison.ranking[0]
        share = comparison.first_share[best.thing]
        rows.append(
            (
                "weighted score",
                f"{comparison.title_of[best.thing]}, {best.total:.2f} of 5; first in {100 * share:.0f} % of "
                f"{comparison.request.draws:,} draws of weights and scores",
            )
        )
    for name in comparison.able:
        rows.append(
            (
                comparison.title_of[name],
                f"{money(comparison.totals[name].usd_per_month)} a month, people included"
                if comparison.totals[name].people_usd_per_month
                else f"{money(comparison.totals[name].usd_per_month)} a month, people not counted",
            )
        )
    if comparison.split.worth_it:
        rows.append(("split", comparison.split.because))
    if comparison.migration:
        weeks = [comparison.migration.weeks(end) for end in ("low", "likely", "high")]
        rows.append(
            (
                "migration",
                f"{weeks[1]:.0f} weeks ({weeks[0]:.0f} to {weeks[2]:.0f}), "
                f"{short(comparison.migration.hours.likely)} people-hours",
            )
        )
    parts.append(Pairs(rows=tuple(rows)))
    parts += [Paragraph(text=text, tone="warning") for text in caveats(comparison)]
    return Section(key="summary", title="Summary", parts=tuple(parts))


def headline(comparison: Comparison) -> str:
    """The recommendation of the user's own size of organisation, by horizon."""
    size = comparison.size
    if not comparison.able:
        return f"None of the things compared can do all the work. {comparison.split.because.capitalize()}."
    name = size.name if size else "mid-size"
    own = [one for one in comparison.advice if one.size.name == name]
    choices = {comparison.title_of[one.choice] if one.choice else "none" for one in own}
    if len(choices) == 1:
        said = f"Recommended for {own[0].weeks:g} to {own[-1].weeks:g} weeks alike: {choices.pop()}."
    else:
        said = "; ".join(
            f"{one.horizon} term ({counted(one.weeks, 'week')}): "
            f"{comparison.title_of[one.choice] if one.choice else 'none'}"
            for one in own
        )
        said = f"Recommended: {said}."
    return said if size else f"{said} (The size of the organisation is not said: weights as for a mid-size one.)"


def decision_words(comparison: Comparison) -> str:
    """The leaf, and the thing it means here."""
    decision = comparison.decision
    if decision.leaf is None:
        return f"undecided: {decision.missing} is not known"
    meant = f" ({comparison.title_of[comparison.chosen]})" if comparison.chosen else ""
    but = ""
    if decision.leaf.choose is not None and comparison.chosen is None:
        but = " — nothing compared here is meant by that"
    elif comparison.chosen is not None and not comparison.totals[comparison.chosen].can_do:
        but = " — but not all of the work could be computed there (see the costs)"
    if comparison.chosen is not None and comparison.standing.why_not(comparison.chosen):
        but += f" — but a rule is not known to be met: {comparison.standing.why_not(comparison.chosen)}"
    return f"{decision.leaf.say}{meant}: {decision.leaf.because}{but}"


def decision_section(comparison: Comparison) -> Section:
    """Each question with its answer and where that came from; the tree; what would change the outcome."""
    decision = comparison.decision
    rows = tuple(
        (step.question.ask, step.answer if step.answer != "unknown" else "not known", step.found, step.origin)
        for step in decision.steps
    )
    columns = (
        Column(title="Question", wraps=True),
        Column(title="Answer"),
        Column(title="Found", wraps=True),
        Column(title="From", wraps=True),
    )
    flips = tuple(
        f"if {one.change}: {one.leaf.say}" if one.leaf else f"if {one.change}: undecided, {one.missing} is not known"
        for one in decision.flips
    )
    rules = decision.rules
    return Section(
        key="decision",
        title="Decision",
        parts=(
            Paragraph(text=decision_words(comparison), tone="good" if decision.leaf else "warning"),
            Paragraph(
                text=f"Rule set «{rules.title}» ({rules.name}). {rules.about} Source: {rules.source}.", tone="faint"
            ),
            Table(columns=columns, rows=rows),
            Subheading(text="What would change it"),
            Bullets(items=flips or ("no single other answer leads elsewhere",)),
            Subheading(text="The whole tree"),
            decision_tree(decision),
        ),
    )


def score_section(comparison: Comparison) -> Section:
    """Weights and scores, the ranking, and how far it holds."""
    request, names = comparison.request, [thing.name for thing in comparison.request.things]
    rows = []
    for aspect in comparison.aspects:
        weight = request.weights.get(aspect.key, 0.0)
        if weight > 0 and any(aspect.key in comparison.scores[name] for name in names):
            cells = [comparison.scores[name].get(aspect.key) for name in names]
            origin = "yours" if aspect.key in request.weights_given else "default"
            counted = "" if aspect.key in comparison.counted else " (not counted: not known for all)"
            rows.append(
                (
                    f"{aspect.title}{counted}",
                    f"{weight:g}",
                    origin,
                    *("not known" if cell is None else f"{cell.value:.1f}" for cell in cells),
                )
            )
    columns = (
        Column(title="Aspect", wraps=True),
        Column(title="Weight", align="right"),
        Column(title="From"),
        *(Column(title=comparison.title_of[name], align="right") for name in names),
    )
    ranking = tuple(
        (
            comparison.title_of[one.thing],
            f"{one.total:.2f}",
            f"{one.low:.2f}–{one.high:.2f}",
            f"{100 * comparison.first_share[one.thing]:.0f} %",
            ", ".join(one.unknown) or "none",
        )
        for one in comparison.ranking
    )
    ranking_columns = (
        Column(title="Thing"),
        Column(title="Score", align="right"),
        Column(title="With what is unknown at 1 and 5"),
        Column(title="First in draws", align="right"),
        Column(title="Unknown", wraps=True),
    )
    out = [comparison.title_of[name] for name in names if name not in comparison.able]
    parts: list[Part] = [Table(columns=ranking_columns, rows=ranking, first_is_best=True)]
    if (chart := score_chart(comparison)) is not None:
        parts.append(chart)
    if out and comparison.able:
        parts.append(
            Paragraph(text=f"Not ranked, because not all the work can be done there: {', '.join(out)}.", tone="warning")
        )
    parts += [
        Subheading(text="Which weights would change the winner"),
        *((weights,) if (weights := sensitivity_chart(comparison)) is not None else ()),
        Bullets(items=flip_lines(comparison.flips, comparison) or ("no weight of a single aspect changes the winner",)),
        Paragraph(
            text=f"Draws: {request.draws:,}, seed {request.seed}. Weights log-normal around their own (sigma 0.5), "
            "judged scores one off in half of the draws, computed scores anywhere in their interval, each by itself: "
            "what would bend all judged scores one way is not in the shares.",
            tone="faint",
        ),
        Subheading(text="Who leads by which grounds"),
        Pairs(rows=tuple((part, level(comparison, things)) for part, things in comparison.leaders)),
        Subheading(text="Weights and scores"),
        Table(columns=columns, rows=tuple(rows)),
    ]
    return Section(key="scores", title="Scores and sensitivity", parts=tuple(parts))


def flip_lines(flips: tuple[WeightFlip, ...], comparison: Comparison) -> tuple[str, ...]:
    """Nearest first."""
    aspects = {aspect.key: aspect.title for aspect in comparison.aspects}
    return tuple(
        f"{aspects[one.aspect]}: {comparison.title_of[one.rival]} wins with a weight {one.side} "
        f"{short(one.weight_at_tie)} (now {one.weight_now:g})"
        for one in flips
    )


def advice_section(comparison: Comparison) -> Section:
    """One table: sizes down, horizons across; then the reasons."""
    advice, horizons = comparison.advice, comparison.request.horizon_weeks
    columns = (
        Column(title="Organisation"),
        *(Column(title=f"{name} ({counted(weeks, 'week')})", wraps=True) for name, weeks in horizons.items()),
    )
    rows = []
    for size in dict.fromkeys(one.size.name for one in advice):
        own = [one for one in advice if one.size.name == size]
        mark = " — this one" if comparison.size and comparison.size.name == size else ""
        rows.append(
            (own[0].size.title + mark, *(comparison.title_of[one.choice] if one.choice else "none" for one in own))
        )
    name = comparison.size.name if comparison.size else "mid-size"
    reasons = tuple((f"{one.horizon} term", one.because) for one in advice if one.size.name == name)
    out: dict[tuple[str, str], list[str]] = {}
    for one in (one for one in advice if one.size.name == name):
        for thing, why in one.out.items():
            out.setdefault((thing, why), []).append(one.horizon)
    cost_columns = (
        Column(title="Cost of the whole horizon"),
        *(Column(title=name, align="right") for name in horizons),
    )
    costs = tuple(
        (comparison.title_of[thing.name], *(money(one.costs[thing.name]) for one in advice if one.size.name == name))
        for thing in comparison.request.things
    )
    parts: list[Part] = [
        Paragraph(
            text="The weighted score anew for each: the cost of the whole horizon (moving or set-up once, then running "
            "and people; today's bill until the move is done; running both at once is not counted), the user's "
            "weights times what organisations of that size weigh. What is not reached within the horizon is out. "
            f"Factors: {load_sizes().source}.",
            tone="faint",
        ),
        Table(columns=columns, rows=tuple(rows)),
        Subheading(text="Because"),
        Pairs(rows=reasons),
        Table(columns=cost_columns, rows=costs),
    ]
    if out:
        parts += [
            Subheading(text="Out of the running"),
            Bullets(
                items=tuple(
                    f"{', '.join(terms)} term: {comparison.title_of[thing]} {why}"
                    for (thing, why), terms in out.items()
                )
            ),
        ]
    parts += horizon_steps(comparison)
    return Section(key="recommendation", title="Recommendation by horizon", parts=tuple(parts))


def split_section(comparison: Comparison) -> Section:
    """Which work goes where, if several are used."""
    split, titles = comparison.split, comparison.title_of
    rows = tuple((work, titles[name] if name else "none can") for work, name in split.places)
    pairs = [("split, a month", money(split.usd_per_month))]
    if split.single:
        pairs.append((f"all on {titles[split.single]}, a month", money(split.single_usd_per_month)))
    used = dict.fromkeys(name for _, name in split.places if name)
    entries = [f"{titles[name]} {money(comparison.entries[name].usd)}" for name in used if comparison.entries[name].usd]
    if len(used) > 1 and entries:
        pairs.append(("not in it: getting there, once", ", ".join(entries)))
    return Section(
        key="hybrid",
        title="Hybrid split",
        parts=(
            Paragraph(text=split.because.capitalize() + ".", tone="good" if split.worth_it else "plain"),
            Table(columns=(Column(title="Work"), Column(title="Goes to")), rows=rows),
            Pairs(rows=tuple(pairs)),
        ),
    )
