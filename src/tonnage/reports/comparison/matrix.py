"""What is compared, the matrix of criteria with numbered sources, trade-offs."""

from __future__ import annotations

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.compliance import standard_title
from tonnage.comparison.profile_file import Evidence
from tonnage.comparison.profiles import Cell
from tonnage.comparison.request import Alternative
from tonnage.reports.blocks import Bullets, Column, Pairs, Paragraph, Table
from tonnage.reports.comparison.criteria_page import rubric_words
from tonnage.reports.comparison.figures import UNKNOWN, amount, counted, duration, money, rate
from tonnage.reports.comparison.guidance import alike
from tonnage.reports.comparison.sections import Part, Section, Subheading
from tonnage.reports.reasons import risk_words
from tonnage.reports.reasons.comparison import missing_words
from tonnage.reports.wording import short

RULES = "Security and compliance"


class Sources:
    """Evidence, numbered in the order in which it is first named."""

    def __init__(self) -> None:
        self.numbers: dict[Evidence, int] = {}

    def refer(self, cell: Cell) -> str:
        """« [1, 4]» for the evidence of a cell."""
        return self.refer_to(cell.evidence)

    def refer_to(self, evidence: tuple[Evidence, ...]) -> str:
        """The same for any evidence; «?» marks what was not read there. Empty where there is none."""
        numbered = {self.numbers.setdefault(one, len(self.numbers) + 1): one for one in evidence}
        marks = [f"{number}{'' if one.read_on else '?'}" for number, one in sorted(numbered.items())]
        return f" [{', '.join(marks)}]" if marks else ""

    def table(self) -> Table:
        """Every source with its date."""
        rows = tuple(
            (f"[{number}]", one.title, one.url or "no public source: a judgement", _read(one))
            for one, number in self.numbers.items()
        )
        columns = (
            Column(title="No."),
            Column(title="Source", wraps=True),
            Column(title="Address", wraps=True),
            Column(title="Read"),
        )
        return Table(columns=columns, rows=rows)

    def counts(self) -> str:
        """How much of it was read at its maker, in words."""
        public = [one for one in self.numbers if not one.judgement]
        verified = sum(one.verified for one in public)
        third = sum(one.third_party and one.read_on is not None for one in public)
        rest = len(public) - verified - third
        kinds = {
            "read at the maker or in a stored copy of it": verified,
            "a third party's word": third,
            "not verified (marked «?»)": rest,
        }
        said = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        judged = len(self.numbers) - len(public)
        return f"Public sources: {len(public)}{f' ({said})' if said else ''}. Judgements besides: {judged}."


def _read(one: Evidence) -> str:
    if one.read_on is None:
        return "not verified"
    return f"{one.read_on.isoformat()}, third party" if one.third_party else one.read_on.isoformat()


def scope_section(comparison: Comparison) -> Section:
    """Which work, at which volume, for which team."""
    request, team = comparison.request, comparison.request.organisation
    rows = tuple(
        (
            one.name,
            one.workload.kind,
            comparison.totals[request.alternatives[0].name].rows[place].volume,
            one.workload.file or "",
        )
        for place, one in enumerate(comparison.works)
    )
    columns = (Column(title="Work"), Column(title="Kind"), Column(title="Volume"), Column(title="File"))
    people: tuple[tuple[str, str], ...] = (
        ("organisation", counted(team.employees, "person", "people") if team.employees else UNKNOWN),
        ("team", counted(team.team_size, "person", "people") if team.team_size else UNKNOWN),
        ("ML expertise", team.ml_expertise or UNKNOWN),
        ("operations expertise", team.ops_expertise or UNKNOWN),
        ("compliance", comparison.standing.titles or "no rule stated"),
        (
            "an hour of work",
            f"${short(team.usd_per_hour)}" if team.usd_per_hour else f"{UNKNOWN}: people are not counted",
        ),
    )
    alternatives = tuple(
        (alternative.title, alternative.profile.about + _narrowed(alternative)) for alternative in request.alternatives
    )
    return Section(
        key="scope",
        title="What is compared",
        parts=(
            Pairs(rows=alternatives),
            Subheading(text="Work"),
            Table(columns=columns, rows=rows),
            Subheading(text="Team"),
            Pairs(rows=people),
        ),
    )


def _narrowed(alternative: Alternative) -> str:
    """What of its profile is compared, where not all of it."""
    own = (("GPUs", alternative.gpus), ("providers", alternative.providers), ("machines", alternative.machines))
    said = "; ".join(f"{what} {', '.join(names)}" for what, names in own if names)
    return f" Here: {said}." if said else ""


def matrix_section(comparison: Comparison, sources: Sources) -> Section:
    """Every criterion of every alternative, by group: value, score, sources."""
    parts: list[Part] = [
        Paragraph(
            text="Scores run from 1 to 5; the appendix says what they mean. Numbers in brackets name "
            "sources, «?» one that was not verified. «not known»: the profile says nothing, and nothing is assumed.",
            tone="faint",
        )
    ]
    titles = [alternative.title for alternative in comparison.request.alternatives]
    for group in dict.fromkeys(criterion.group for criterion in comparison.criteria):
        rows = []
        for criterion in comparison.criteria:
            if criterion.group == group:
                cells = [
                    _cell(comparison, alternative.name, criterion.key, sources)
                    for alternative in comparison.request.alternatives
                ]
                if criterion.measure is not None or any(cell != UNKNOWN for cell in cells):
                    rows.append((criterion.title, *cells))
        if group == RULES:
            rows += rule_rows(comparison, sources)
        if rows:
            parts += [Subheading(text=group), _merged(titles, rows)]
    return Section(key="matrix", title="Matrix", parts=tuple(parts))


def _merged(titles: list[str], rows: list[tuple[str, ...]]) -> Table:
    """The table, with alternatives of which every row says the same in one column."""
    by_cells: dict[tuple[str, ...], list[str]] = {}
    for title, *cells in zip(titles, *(row[1:] for row in rows), strict=True):
        by_cells.setdefault(tuple(cells), []).append(title)
    columns = (Column(title="Criterion"), *(Column(title=", ".join(names), wraps=True) for names in by_cells.values()))
    kept = list(by_cells)
    merged = tuple((row[0], *(cells[place] for cells in kept)) for place, row in enumerate(rows))
    return Table(columns=columns, rows=merged)


def _cell(comparison: Comparison, name: str, criterion: str, sources: Sources) -> str:
    found = next(one for one in comparison.criteria if one.key == criterion)
    score = comparison.scores[name].get(criterion)
    if found.measure is not None:
        total = comparison.totals[name]
        text = {
            "usd_per_month": money(total.usd_per_month),
            "setup_usd": money(total.setup_usd),
            "time_at_budget_s": duration(total.time_at_budget_s),
            "time_on_equal_devices_s": duration(total.time_on_equal_devices_s),
            "latency_p95_s": duration(total.latency_p95_s),
            "throughput_per_s": rate(total.rows[0].rate if len(total.rows) == 1 else None),
            "energy_kwh_per_month": amount(total.energy_kwh_per_month, "kWh"),
            "carbon_kg_per_month": amount(total.carbon_kg_per_month, "kg"),
        }[found.measure]
        if text == UNKNOWN:
            return unknown_because(comparison, name, found.measure)
        figure = getattr(total, found.measure)
        origin = "assumed" if figure is not None and figure.basis == "assumed" else "computed"
        return f"{text} — {origin}{f', {score.value:.1f}/5' if score else ''}"
    alternative = next(one for one in comparison.request.alternatives if one.name == name)
    cell = alternative.profile.cells.get(criterion)
    if cell is None:
        return UNKNOWN
    mark = "" if cell.score is None else f" — {cell.score}/5"
    return f"{cell.value}{mark}{sources.refer(cell)}"


def rule_rows(comparison: Comparison, sources: Sources) -> list[tuple[str, ...]]:
    """A row for each rule that is stated, then for each other one that some profile attests."""
    standing = comparison.standing
    recorded = {name for alternative in comparison.request.alternatives for name in alternative.profile.attestations}
    names = [*standing.needs, *sorted(recorded - set(standing.needs))]
    rows = []
    for name in names:
        cells = []
        for alternative in comparison.request.alternatives:
            match = comparison.record_of(alternative.name, name)
            cells.append(f"{match.words}{sources.refer_to(match.evidence)}")
        title = standard_title(name)
        rows.append((f"{title} (must be met)" if name in standing.needs else title, *cells))
    return rows


def unknown_because(comparison: Comparison, name: str, measure: str) -> str:
    """«not known», and why."""
    total = comparison.totals[name]
    kinds = {row.kind for row in total.rows}
    if measure == "latency_p95_s" and "serve" not in kinds:
        return "no service among the work"
    if measure in ("time_at_budget_s", "time_on_equal_devices_s") and kinds == {"serve"}:
        return "no job among the work"
    if measure == "time_on_equal_devices_s" and total.time_s is not None:
        return "they share no number of accelerators"
    if measure == "throughput_per_s" and len(total.rows) > 1:
        return "several workloads: see Performance"
    if measure in ("energy_kwh_per_month", "carbon_kg_per_month") and total.footprint.missing:
        return f"{UNKNOWN}: {missing_words(total.footprint.missing)}"
    return UNKNOWN


def trade_off_section(comparison: Comparison) -> Section:
    """What each does better and worse than the mean of the others, by at least a point."""
    criteria = {criterion.key: criterion.title for criterion in comparison.criteria}
    parts: list[Part] = [
        Paragraph(text="Criteria in which one is at least a point away from the mean of the others.", tone="faint")
    ]
    for one in comparison.trade_offs:
        parts.append(Subheading(text=comparison.title_of[one.alternative]))
        better = ", ".join(f"{criteria[key]} (+{lead:.1f})" for key, lead in one.better) or "nothing by a point or more"
        worse = ", ".join(f"{criteria[key]} ({lead:.1f})" for key, lead in one.worse) or "nothing by a point or more"
        parts.append(Pairs(rows=(("ahead in", better), ("behind in", worse))))
    return Section(key="trade-offs", title="Trade-offs", parts=tuple(parts))


def risk_section(comparison: Comparison) -> Section:
    """Risks of the profiles, and of the very offers that the costs rest on."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for alternative in comparison.request.alternatives:
        notes = [
            f"{row.work} on {row.option.instance_type}: {risk_words(risk)}"
            for row in comparison.totals[alternative.name].rows
            if row.option is not None
            for risk in row.option.risks
        ]
        found.append((alternative.title, tuple(dict.fromkeys([*alternative.profile.risks, *notes]))))
    parts: list[Part] = []
    for titles, said in alike(found):
        parts += [Subheading(text=titles), Bullets(items=said or ("none is on record",))]
    return Section(key="risks", title="Risks", parts=tuple(parts))


def appendix_section(comparison: Comparison, sources: Sources) -> Section:
    """Sources, judged hours, the rubric of each score, where assumptions are listed."""
    said = (
        f"The predictions rest on {len(comparison.assumptions)} stated assumptions, each with range and source: "
        "`tonnage explain FILE` lists them, and `assumptions` in the JSON form. Why each score was given: `because` in "
        "the JSON form."
    )
    parts: list[Part] = [
        Subheading(text="Sources"),
        Paragraph(text=sources.counts(), tone="faint"),
        sources.table(),
        Subheading(text="People-hours"),
        _hours_table(comparison),
        Subheading(text="What the scores mean"),
        _rubric_table(comparison),
        Subheading(text="Assumptions"),
        Paragraph(text=said),
    ]
    return Section(key="appendix", title="Appendix: sources, people-hours, scores, assumptions", parts=tuple(parts))


def _rubric_table(comparison: Comparison) -> Table:
    """What a score of each criterion that is scored here means."""
    given = {key for scores in comparison.scores.values() for key in scores}
    rows = tuple((one.title, rubric_words(one)) for one in comparison.criteria if one.key in given)
    return Table(columns=(Column(title="Criterion", wraps=True), Column(title="Scores", wraps=True)), rows=rows)


def _hours_table(comparison: Comparison) -> Table:
    titles_by_text: dict[tuple[str, str, str], list[str]] = {}
    for alternative in comparison.request.alternatives:
        for what, hours in (("set-up", alternative.setup_hours), ("a month", alternative.operation_hours_per_month)):
            if hours is not None:
                span = f"{short(hours.likely)} ({short(hours.low)}–{short(hours.high)}) h"
                titles_by_text.setdefault((what, span, hours.because), []).append(alternative.title)
    rows = tuple((", ".join(titles), *said) for said, titles in titles_by_text.items())
    columns = (
        Column(title="Alternative", wraps=True), Column(title="For"), Column(title="Hours"),
        Column(title="Because", wraps=True),
    )  # fmt: skip
    return Table(columns=columns, rows=rows)
