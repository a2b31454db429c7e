"""All sections of a comparison, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import WorkDemand, WorkRow
from tonnage.planning.plan import Option, TokenOption
from tonnage.reports.blocks import Paragraph
from tonnage.reports.comparison.choice import (
    advice_section,
    decision_section,
    score_section,
    split_section,
    summary_section,
)
from tonnage.reports.comparison.costs import cost_section, performance_section, volume_section
from tonnage.reports.comparison.decision_views import quoted
from tonnage.reports.comparison.drawings import Architecture, Lane, Station
from tonnage.reports.comparison.guidance import (
    choosing_section,
    footprint_section,
    levers_section,
    moves_section,
    practice_section,
)
from tonnage.reports.comparison.matrix import (
    Sources,
    appendix_section,
    matrix_section,
    risk_section,
    scope_section,
    trade_off_section,
)
from tonnage.reports.comparison.moving import migration_section
from tonnage.reports.comparison.sections import Chart, Section
from tonnage.reports.wording import (
    PROMISES,
    render_bought,
    render_count,
    render_duration,
    render_gpus,
    render_machines,
    short,
)
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import BatchJob, ServeJob, TrainJob
from tonnage.workload.token_models import spoken_model_name


def build_sections(comparison: Comparison) -> tuple[Section, ...]:
    """The whole report: the answer first, its inputs after it, sources last."""
    sources = Sources()
    matrix = matrix_section(comparison, sources)
    out = [
        summary_section(comparison),
        scope_section(comparison),
        matrix,
        architecture_section(comparison),
        choosing_section(comparison),
        cost_section(comparison),
        levers_section(comparison),
        volume_section(comparison),
        performance_section(comparison),
        footprint_section(comparison),
        decision_section(comparison),
        score_section(comparison),
        trade_off_section(comparison),
        advice_section(comparison),
        split_section(comparison),
        moves_section(comparison),
    ]
    if comparison.migration is not None:
        out.append(migration_section(comparison.migration, comparison))
    out += [practice_section(comparison), risk_section(comparison), appendix_section(comparison, sources)]
    return tuple(out)


def subtitle(comparison: Comparison) -> str:
    """When, and on which prices."""
    stamps = {row.stamp for total in comparison.totals.values() for row in total.rows if row.stamp is not None}
    stamp = min(stamps, key=lambda one: one.snapshot) if stamps else None
    said = f"As of {comparison.as_of.date().isoformat()}"
    return said if stamp is None else f"{said}; prices of catalog {stamp.snapshot}, built {stamp.built_on.isoformat()}"


NOWHERE: Final = Station(title="Nothing", lines=("it cannot do this work",), there=False)


def architecture_section(comparison: Comparison) -> Section:
    """A picture an alternative, of the cheapest way to do each work there."""
    charts = tuple(
        _chart(comparison, place, alternative.name) for place, alternative in enumerate(comparison.request.alternatives)
    )
    note = Paragraph(text="The cheapest way to do each work there. Dashed: it cannot be done there.", tone="faint")
    return Section(key="architecture", title="How each would be built", parts=(note, *charts))


def _chart(comparison: Comparison, place: int, name: str) -> Chart:
    total, title = comparison.totals[name], comparison.title_of[name]
    by_name = {work.name: work for work in comparison.works}
    lanes = tuple(_lane(by_name[row.work], row) for row in total.rows)
    return Chart(
        key=f"chart-architecture-{place}",
        title=title,
        note="",
        text="; ".join(map(_lane_text, lanes)),
        drawing=Architecture(platform=title, lanes=lanes),
        mermaid=architecture_mermaid(title, lanes),
    )


def _lane_text(lane: Lane) -> str:
    stations = (lane.source, lane.does, lane.result, lane.beside)
    return " -> ".join(f"{one.title} ({', '.join(one.lines)})" for one in stations if one is not None)


def _lane(work: WorkDemand, row: WorkRow) -> Lane:
    option = row.option
    if option is None:
        return Lane(source=_source(work), does=NOWHERE, result=None)
    return Lane(source=_source(work), does=_does(option), result=_result(work, option), beside=_beside(option))


def _source(work: WorkDemand) -> Station:
    job = work.workload.job
    if isinstance(job, ServeJob):
        return Station(title="Clients", lines=(f"{short(job.rate_per_s)} requests/s",))
    a_month = () if work.jobs_per_month is None else (f"{short(work.jobs_per_month)} times a month",)
    if isinstance(job, TrainJob):
        return Station(title="Training data", lines=(f"{render_count(job.samples)} samples", *a_month))
    if isinstance(job, BatchJob):
        return Station(title="Requests", lines=(f"{render_count(job.items)} items", *a_month))
    return Station(title="Table", lines=(f"{render_count(job.rows)} rows", *a_month))


def _does(option: Option) -> Station:
    where = " ".join(filter(None, (option.provider, option.region)))
    bought = render_bought(option.purchase, option.platform)
    if isinstance(option, TokenOption):
        how = "customised from" if option.training else "token API"
        return Station(title=spoken_model_name(option.instance_type), lines=(how, where, bought))
    each = " each" if option.count > 1 else ""
    gpus = render_gpus(option.gpu, option.gpu_count) + each
    return Station(title=render_machines(option.count, option.instance_type), lines=(gpus, where, bought))


def _result(work: WorkDemand, option: Option) -> Station:
    job = work.workload.job
    if isinstance(job, ServeJob):
        promised = option.promised
        if promised is None:
            return Station(title="Answers", lines=())
        # The latency of a token API is not published: what the user states is no prediction of ours.
        how = "stated" if isinstance(option, TokenOption) else "predicted"
        return Station(title="Answers", lines=(PROMISES[promised[0]], render_duration(promised[1].value), how))
    title = "Answers" if isinstance(job, BatchJob) else "Model"
    return Station(title=title, lines=() if option.time_s is None else (f"in {render_duration(option.time_s.value)}",))


def _beside(option: Option) -> Station | None:
    """What machines on spot save on the way, and how often."""
    saves = option.spot
    if saves is None:
        return None
    if saves.keeps_items:
        return Station(title="Answers kept", lines=("each as it comes",))
    if saves.interval_h >= saves.work_h:
        return Station(title="No checkpoint", lines=("a lost job starts again",))
    every = f"every {render_duration(saves.interval_h * SECONDS_PER_HOUR)}"
    return Station(title="Checkpoints", lines=(f"{option.provider} storage, {every}",))


def architecture_mermaid(platform: str, lanes: tuple[Lane, ...]) -> str:
    """The same for Markdown."""
    return "\n".join(("flowchart LR", *_mermaid_lines(platform, lanes))) + "\n"


def _mermaid_lines(platform: str, lanes: tuple[Lane, ...]) -> Iterator[str]:
    yield f'  subgraph platform["{quoted(platform)}"]'
    for place, lane in enumerate(lanes):
        yield f"    does{place}{_mermaid_box(lane.does)}"
        if lane.beside is not None:
            yield f"    beside{place}[({_mermaid_text(lane.beside)})]"
    yield "  end"
    for place, lane in enumerate(lanes):
        yield f"  source{place}{_mermaid_box(lane.source)} --> does{place}"
        if lane.result is not None:
            yield f"  does{place} --> result{place}{_mermaid_box(lane.result)}"
        if lane.beside is not None:
            yield f"  does{place} <--> beside{place}"
        if not lane.does.there:
            yield f"  style does{place} stroke-dasharray:4"


def _mermaid_box(station: Station) -> str:
    return f"[{_mermaid_text(station)}]"


def _mermaid_text(station: Station) -> str:
    return f'"{"<br>".join(quoted(line) for line in (station.title, *station.lines))}"'
