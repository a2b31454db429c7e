"""The charts of a comparison: what they show; they stand alone, hold on light and dark, and repeat to the byte."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.crossings import cost_at
from tonnage.comparison.fronts import pace, pareto_front
from tonnage.reports.blocks import Table
from tonnage.reports.comparison import plots
from tonnage.reports.comparison.content import build_sections
from tonnage.reports.comparison.drawings import (
    Architecture,
    ChartMark,
    Curve,
    Curves,
    Front,
    FrontPoint,
    Lane,
    ScoreBar,
    ScoreBars,
    Shift,
    Shifts,
    Stack,
    StackedBar,
    Station,
    TaskSpan,
    TaskSpans,
)
from tonnage.reports.comparison.sections import Chart
from tonnage.sizing.estimates import Figure

TEMPLATE = Path(plots.__file__).parents[1] / "templates" / "comparison.html.jinja"
SERVICE = ("workloads: [{file: tune.yaml, jobs_per_month: 30}]", "workloads: [{file: answer.yaml}]")
ODD = "Ours & <b>theirs</b> ]]> #1"
DRAWINGS = {
    "architecture": Architecture(
        platform=ODD,
        lanes=(
            Lane(
                source=Station(title="Training data", lines=(ODD, "4 times a month")),
                does=Station(title="2 x g4dn.xlarge", lines=("1 x T4 each", "aws us-east-1")),
                result=Station(title="Model", lines=("in 2 h",)),
                beside=Station(title="Checkpoints", lines=("every 12 min",)),
            ),
            Lane(
                source=Station(title="Clients", lines=()), result=None,
                does=Station(title="Nothing", lines=("it cannot do this work",), there=False),
            ),
        ),
    ),
    "stack": Stack(
        bars=(
            StackedBar(
                name=ODD, label="12", parts=(("machines", 9.0), ("people", 3.0)), limit=15.0,
                total=Figure(value=12.0, low=10.0, high=19.0),
            ),
            StackedBar(name="Rebate", label="4", parts=(("machines", 5.0), ("other", -1.0)),
                       total=Figure(value=4.0, low=4.0, high=4.0)),
        ),
        x_title="dollars a month", in_dollars=True,
    ),
    "curves": Curves(
        curves=(
            Curve(name=ODD, points=((0.1, 10.0, 8.0, 15.0), (1.0, 100.0, 80.0, 150.0), (10.0, 1000.0, 800.0, 1500.0))),
            Curve(name="Flat", points=((0.1, 90.0, 80.0, 99.0), (10.0, 90.0, 80.0, 99.0))),
        ),
        marks=(ChartMark(x=0.9, y=90.0, label=f"0.9x: {ODD}"),), x_title="multiple", y_title="dollars a month",
    ),
    "front": Front(
        choices=(
            FrontPoint(name=ODD, cost=Figure(value=1.0, low=0.8, high=1.5), time=Figure(value=9.0, low=8.0, high=9.5),
                   best=True),
            FrontPoint(name="Fast", cost=Figure(value=40.0, low=30.0, high=90.0),
                       time=Figure(value=5.0, low=4.0, high=7.0), best=True),
        ),
        x_title="dollars a job", y_title="time of a job, minutes",
    ),
    "scores": ScoreBars(
        bars=(ScoreBar(name=ODD, label="3", value=Figure(value=3.0, low=2.5, high=3.5)),), highest=5.0, x_title="score"
    ),
    "shifts": Shifts(shifts=(Shift(name=ODD, label="now 1", now=1.0, tie=3.0),), x_title="weight"),
    "spans": TaskSpans(
        spans=(
            TaskSpan(name=ODD, phase="Prepare", start=date(2026, 12, 1), end=date(2026, 12, 4), critical=True,
                 end_fast=date(2026, 12, 3), end_slow=date(2026, 12, 12)),
            TaskSpan(name="Then", phase="Close", start=date(2026, 12, 5), end=date(2026, 12, 9), critical=False,
                 end_fast=date(2026, 12, 8), end_slow=date(2026, 12, 19)),
        ),
        x_title="day",
    ),
}  # fmt: skip


def chart(kind: str) -> Chart:
    return Chart(key=f"chart-{kind}", title=f"A {kind}: {ODD}", note="", text=f"{ODD} is 12", drawing=DRAWINGS[kind])


def charts_of(comparison: Comparison) -> dict[str, Chart]:
    found = [part for section in build_sections(comparison) for part in section.parts if isinstance(part, Chart)]
    assert len({one.key for one in found}) == len(found)
    return {one.key: one for one in found}


@pytest.mark.parametrize("kind", DRAWINGS)
def test_a_drawing_stands_alone(kind: str) -> None:
    """It scales, is named and described, refers to nothing else, and shows a user's text as text."""
    svg = plots.draw_svg(chart(kind))
    head = svg[: svg.index(">")]
    assert re.search(r'viewBox="0 0 [\d.]+ [\d.]+"', head)
    assert " width=" not in head
    assert 'role="img"' in head
    assert re.findall(r'id="([^"]*)"', svg) == [f"chart-{kind}-title", f"chart-{kind}-text"]
    assert f'aria-labelledby="chart-{kind}-title chart-{kind}-text"' in head
    assert not re.search(r"url\(|href|<script|<style|<image|font-family=\"[^L]", svg)
    assert "<b>" not in svg
    assert svg.count("Ours &amp; &lt;b&gt;theirs&lt;/b&gt; ]]&gt; #1") >= 3  # title, words, and in the picture


@pytest.mark.parametrize("kind", DRAWINGS)
def test_a_drawing_is_valid_vega_lite(kind: str) -> None:
    """Each part holds against the schema of Vega-Lite, and unchecked, as in reports, the picture is the same."""
    drawing = DRAWINGS[kind]
    assert plots.specification(drawing, checked=True) == plots.specification(drawing)


@pytest.mark.parametrize("kind", DRAWINGS)
def test_colours_hold_on_light_and_dark(kind: str) -> None:
    """Text, axes and whiskers take the page's colour; everything else one of the palette."""
    svg = plots.draw_svg(chart(kind))
    assert all('fill="currentColor"' in text for text in re.findall(r"<text [^>]*>", svg))
    colors = set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg))
    assert colors <= {"currentColor", "none", "transparent", *plots.COLORS}


def luminance(color: str) -> float:
    """Relative luminance (WCAG 2.2) of «#rrggbb»."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_palette_is_seen_on_both_pages() -> None:
    """Every colour of a series has a contrast of 3 or more to the light page and to the dark one."""
    pages = re.findall(r"--page: (#\w{6})", TEMPLATE.read_text(encoding="utf-8"))
    assert len(pages) == 2
    for page in pages:
        for color in plots.COLORS:
            lighter, darker = sorted((luminance(page), luminance(color)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 3, (color, page)


def test_axes_have_titles_and_intervals_are_drawn() -> None:
    """Titles with their units; a whisker, band or cross for each interval; a crossing has its words."""
    for kind, drawing in DRAWINGS.items():
        if isinstance(drawing, Architecture):
            continue
        assert drawing.x_title in plots.draw_svg(chart(kind))
    svg = plots.draw_svg(chart("curves"))
    assert "dollars a month" in svg
    assert "0.9x: Ours" in svg
    assert len(re.findall(r'fill-opacity="0.16"|opacity="0.16"', svg)) == 2
    assert "$100" in svg
    narrow = replace(DRAWINGS["scores"], bars=(ScoreBar(name="a", label="3", value=Figure(value=3, low=3, high=3)),))
    lines = [
        plots.draw_svg(replace(chart("scores"), drawing=one)).count("<line") for one in (DRAWINGS["scores"], narrow)
    ]
    assert lines[0] > lines[1]


@pytest.mark.slow
def test_another_process_in_another_zone_draws_the_same_bytes() -> None:
    """Neither clock, zone, hash seed nor order of drawing is in a picture."""
    program = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('charts', sys.argv[1]); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); "
        "sys.stdout.write(''.join(m.plots.draw_svg(m.chart(kind)) for kind in sorted(m.DRAWINGS, reverse=True)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, __file__],
        capture_output=True,
        check=True,
        env={
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "TZ": "Asia/Kathmandu",
            "PYTHONHASHSEED": "7",
            "PYTHONUTF8": "1",
        },
    )
    ours = "".join(plots.draw_svg(chart(kind)) for kind in sorted(DRAWINGS, reverse=True))
    assert done.stdout.decode() == ours


def test_every_kind_is_there(compared: Callable[..., Comparison]) -> None:
    """Cost stack, cost by volume, front, memory, scores, weights, migration; each has its figures in a table. And a
    picture of each alternative's architecture, which has none."""
    every = charts_of(compared())
    found = {key: one for key, one in every.items() if not isinstance(one.drawing, Architecture)}
    assert set(every) - set(found) == {f"chart-architecture-{place}" for place in range(3)}
    assert set(found) == {"chart-costs", "chart-volume", "chart-front-1", "chart-memory-1", "chart-scores",
                          "chart-weights", "chart-migration"}  # fmt: skip
    assert all(one.title and one.note and one.text for one in found.values())
    for section in build_sections(compared()):
        for part in section.parts:
            if isinstance(part, Chart) and part.key in found and part.figures is None:
                assert any(isinstance(other, Table) for other in section.parts), part.key


def test_a_month_is_the_sum_of_its_parts(compared: Callable[..., Comparison]) -> None:
    """The parts of a bar add up to the total that stands beside it."""
    comparison = compared()
    stack = charts_of(comparison)["chart-costs"].drawing
    assert isinstance(stack, Stack)
    assert [bar.name for bar in stack.bars] == [comparison.title_of[name] for name in comparison.able]
    for bar in stack.bars:
        assert sum(amount for _, amount in bar.parts) == pytest.approx(bar.total.value)
        assert bar.total.low < bar.total.value < bar.total.high


def test_curves_turn_where_the_cheapest_changes(compared: Callable[..., Comparison], standard: str) -> None:
    """A mark stands on the lowest line, another one is lowest beyond it; a cross of two dear lines has no mark."""
    text = standard.replace(*SERVICE).replace('  - {name: databricks, title: "Databricks <b>"}\n', "  - bedrock\n")
    text = text[: text.index("migration:")]
    comparison = compared(text)
    curves = charts_of(comparison)["chart-volume"].drawing
    assert isinstance(curves, Curves)
    totals = [comparison.totals[name] for name in comparison.able]

    def cheapest(factor: float) -> str:
        return min(totals, key=lambda total: cost_at(total, factor)).alternative

    ends = (curves.curves[0].points[0][0], curves.curves[0].points[-1][0])
    assert len({cheapest(end) for end in ends}) == 2
    assert len(curves.marks) == 1
    for mark in curves.marks:
        assert mark.y == pytest.approx(min(cost_at(total, mark.x) for total in totals))
        assert cheapest(mark.x * 0.98) != cheapest(mark.x * 1.02)


def test_a_front_holds_what_nothing_beats(compared: Callable[..., Comparison]) -> None:
    """From cheap and slow to dear and fast; whatever is left out is beaten by one that stays."""
    option = compared().totals["sagemaker"].rows[0].option
    assert option is not None

    def way(cost: float, seconds: float | None) -> object:
        figure = None if seconds is None else Figure(value=seconds, low=seconds, high=seconds)
        return replace(option, cost_usd=Figure(value=cost, low=cost, high=cost), time_s=figure)

    ways = [way(3, 50), way(1, 90), way(2, 95), way(4, 50), way(9, 10), way(5, None)]
    found = [(one.cost_usd.value, pace(one).value) for one in pareto_front(ways)]
    assert found == [(1, 90), (3, 50), (9, 10)]


def test_memory_of_equal_devices_is_shown_once(compared: Callable[..., Comparison]) -> None:
    """Three alternatives on one device are one bar that names them all in its table."""
    memory = charts_of(compared())["chart-memory-1"]
    assert isinstance(memory.drawing, Stack)
    (bar,) = memory.drawing.bars
    assert bar.name == "Self-managed GPU machines on AWS, Databricks <b>, Amazon SageMaker AI"
    assert bar.shown == "Self-managed GPU machines on AWS and 2 more"
    assert bar.limit == 15.0
    assert bar.parts == (("weights", 1.0), ("working weights", 3.0))
    assert memory.figures is not None
    assert memory.figures.rows[0][0] == bar.name


def test_gantt_ends_lie_in_order(compared: Callable[..., Comparison]) -> None:
    """Fast, likely, slow; the outlined tasks are the critical ones."""
    comparison = compared()
    spans = charts_of(comparison)["chart-migration"].drawing
    assert isinstance(spans, TaskSpans)
    assert comparison.migration is not None
    assert all(one.end_fast <= one.end <= one.end_slow for one in spans.spans)
    assert sum(one.critical for one in spans.spans) == len(comparison.migration.critical)


def test_an_architecture_is_that_of_the_cheapest_option(compared: Callable[..., Comparison]) -> None:
    """Source, machines and result of each work; as Mermaid for Markdown, with a user's text as text."""
    comparison = compared()
    chart = charts_of(comparison)["chart-architecture-1"]
    assert isinstance(chart.drawing, Architecture)
    (lane,) = chart.drawing.lanes
    option = comparison.totals["databricks"].rows[0].option
    assert option is not None
    assert lane.source == Station(title="Training data", lines=("1,000 samples", "30 times a month"))
    assert lane.does.title == option.instance_type
    assert lane.result == Station(title="Model", lines=("in 6 min",))
    assert lane.beside is None
    assert 'subgraph platform["Databricks #lt;b#gt;"]' in chart.mermaid
    assert 'source0["Training data<br>1,000 samples<br>30 times a month"] --> does0' in chart.mermaid


def test_work_that_cannot_be_done_is_dashed(compared: Callable[..., Comparison], standard: str) -> None:
    """A service that an alternative does not have: no result, and a picture that says so."""
    found = charts_of(compared(standard.replace(*SERVICE)))["chart-architecture-1"]
    assert isinstance(found.drawing, Architecture)
    (lane,) = found.drawing.lanes
    assert (lane.does.there, lane.result) == (False, None)
    assert "stroke-dasharray" in found.mermaid
    assert "stroke-dasharray" in plots.draw_svg(found)
