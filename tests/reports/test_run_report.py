"""Reports on runs: every form, self-contained, saying why a prediction was missed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.reports import Look, render_report
from tonnage.reports.blocks import LineChart, Page
from tonnage.reports.line_chart import chart_lines, render_spark, render_svg, thinned, ticks
from tonnage.reports.run_comparison import comparison_report, differing
from tonnage.reports.run_lists import runs_list
from tonnage.reports.run_report import run_report
from tonnage.reports.visible import visible_page
from tonnage.runs import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.summary import RunSummary, summarise
from tonnage.store.rows import RunRow
from tonnage.testing import run_spec, write_run

DOC = Path(__file__).parents[2] / "docs" / "json.md"


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "low": 0.8 * value, "high": 1.2 * value, "basis": "measured"}


@pytest.fixture
def run(tmp_path: Path) -> RunSummary:
    """Half as fast as predicted, waiting for data."""
    figures = {"samples_per_s": figure(320), "peak_memory_gib": figure(10), "cost_usd": figure(0.06)}
    prediction = {"device": "H100-SXM", "why_none": None, "figures": figures}
    return summarise(write_run(tmp_path / "one", step_s=0.2, line={"data_wait_s": 0.06}, prediction=prediction))


@pytest.fixture
def adapted(tmp_path: Path) -> RunSummary:
    spec = run_spec("two")
    spec = replace(spec, training=replace(spec.training, method="lora", learning_rate=1e-4))
    return summarise(write_run(tmp_path / "two", spec, step_s=0.1))


def test_a_page_says_why_it_was_slower(run: RunSummary) -> None:
    """Predicted, interval, measured, verdict and reason stand beside each other; what was kept is listed."""
    text = render_report(run_report(run), "table", Look(width=140))
    assert re.search(r"samples/s +320 +256 – 384 +160 +-50 % +NO", text)
    assert re.search(r"peak memory +10 GiB .* 11 GiB +\+10 % +yes +whole device", text)
    assert "30 % of the step time was waiting for data" in text
    assert re.search(r"0.572 [▁-█]+ 0.0928", text)
    assert re.search(r"accuracy +0.91 +0.62", text)


def test_a_page_says_what_time_is_billed_by(run: RunSummary) -> None:
    """The quantum, and the key and the option that change it; in JSON each session has it."""
    text = render_report(run_report(run), "table", Look(width=140))
    assert "billed by 60 s begun (`run.limits.billing_quantum`, --billing-quantum)" in text
    assert run_report(run).document()["spend"][0]["billing_quantum_s"] == 60


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_page_fits_its_window(run: RunSummary, width: int) -> None:
    """No line is wider than the window."""
    lines = render_report(run_report(run), "table", Look(width=width)).splitlines()
    assert max(map(len, lines)) <= width


def test_html_needs_nothing_else(run: RunSummary) -> None:
    """One file: no script, nothing fetched, the loss drawn, text escaped."""
    records = replace(run.records, spec=replace(run.records.spec, model="<b>&"))
    text = render_report(run_report(replace(run, records=records)), "html")
    assert "<svg" in text
    assert not re.search(r"<script|https?://|src=|@import", text)
    assert "&lt;b&gt;&amp;" in text


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_a_run_that_did_nothing_yet_has_a_report(tmp_path: Path, form: Any) -> None:
    """In every form; nothing is invented."""
    folder = RunFolder(tmp_path / "new")
    folder.create(run_spec("new"))
    folder.record(EventKind.SUBMITTED, who="cli")
    text = render_report(run_report(summarise(folder)), form)
    assert text.endswith("\n")
    if form == "json":
        document = json.loads(text)
        assert (document["state"], document["figures"], document["measured"]["samples_per_s"]) == ("pending", [], None)


def test_why_nothing_was_predicted_is_said(tmp_path: Path) -> None:
    """In the words of who could not."""
    prediction = {"device": None, "why_none": "there is no profile of this device", "figures": {}}
    text = render_report(run_report(summarise(write_run(tmp_path / "x", prediction=prediction))), "md")
    assert "Nothing was predicted: there is no profile of this device" in text


def test_documents_are_described(run: RunSummary, adapted: RunSummary) -> None:
    """docs/json.md has a section for each document that names its keys."""
    row = RunRow(name="one", folder="/x", host="", task="causal-lm", model="m", runner="local", state="failed",
                 reason="Diverged", message="", submitted_at=None, started_at=None, ended_at=None, attempt=1, step=3,
                 lost_steps=0, events=4, usd=None)  # fmt: skip
    listed = runs_list((row,), database="sqlite:///x", top=None)
    for report in (run_report(run), comparison_report([run, adapted]), listed):
        document = json.loads(render_report(report, "json"))
        text = DOC.read_text(encoding="utf-8")
        section = re.search(rf"^## {re.escape(document['schema'])}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section, document["schema"]
        inner = document["runs"][0] if document["schema"] == "tonnage/runs@1" else {}
        missing = [key for key in (*document, *inner) if f"`{key}`" not in section[1]]
        assert not missing, missing


def test_the_same_folder_gives_the_same_bytes(run: RunSummary) -> None:
    """Twice read, twice the same JSON."""
    again = summarise(RunFolder(Path(run.folder)))
    assert render_report(run_report(run), "json") == render_report(run_report(again), "json")


# two runs


def test_only_what_differs_is_shown(run: RunSummary, adapted: RunSummary) -> None:
    """Parameters by their place; names of runs are no difference; speed, quality and cost beside each other."""
    assert differing([run.records.spec, adapted.records.spec]) == {
        "training.method": ("full", "lora"), "training.learning_rate": (2e-05, 1e-4)}  # fmt: skip
    document = json.loads(render_report(comparison_report([run, adapted]), "json"))
    assert document["runs"] == ["one", "two"]
    assert document["speed"]["samples_per_s"] == [160, 320]
    assert document["quality"]["accuracy"] == [0.91, 0.91]
    text = render_report(comparison_report([run, adapted]), "table")
    assert re.search(r"samples/s +160 +320 +2\n", text)


def test_the_same_run_twice_differs_in_nothing(run: RunSummary) -> None:
    """It says so."""
    assert "the same was asked of all" in render_report(comparison_report([run, run]), "table")


# charts


def test_a_chart_holds_every_point_or_the_extremes() -> None:
    """Many points are thinned to the lowest and highest of each stretch, so that a spike stays."""
    points = [(float(at), 1.0) for at in range(10_000)]
    points[5_431] = (5_431.0, 9.0)
    kept = thinned(points, 400)
    assert len(kept) <= 400
    assert points[5_431] in kept
    assert thinned(points[:10], 400) == points[:10]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (1e-9, 3e-9), (1e6, 1.1e6), (5.0, 5.0), (0.0, 0.0)])
def test_marks_enclose_the_points(low: float, high: float) -> None:
    """Between two and seven marks, the first not above the lowest point, the last not below the highest."""
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 7
    assert marks[0] <= low + 1e-12
    assert marks[-1] >= high - 1e-12 * abs(high)


def test_points_that_are_no_numbers_are_left_out() -> None:
    """A loss that diverged breaks no chart; where nothing is left, nothing is drawn."""
    chart = LineChart(title="loss", x_title="step", y_title="", series=(("a", ((1.0, 2.0), (2.0, float("nan")))),))
    assert "nan" not in render_svg(chart)
    assert list(chart_lines(chart, 10)) == ["2 ▄ 2  (step 1 to 1)"]
    empty = replace(chart, series=(("a", ((1.0, float("inf")),)),))
    assert render_svg(empty) == ""
    assert render_spark([], 10) == ""


def test_names_of_lines_lie_on_no_line() -> None:
    """They stand in rows above the plot, wherever the lines run; one line alone has no name."""
    lines = tuple((f"line {number}", ((0.0, 0.0), (1.0, 100.0), (2.0, 100.0))) for number in range(5))
    drawn = render_svg(LineChart(title="t", x_title="x", y_title="y", series=lines))
    named = [float(y) for y in re.findall(r'<text x="[0-9.]+" y="([0-9.]+)"[^>]*>line \d', drawn)]
    ways = re.findall(r'<path d="M([^"]+)" fill="none"', drawn)
    highest = min(float(point.split()[1]) for way in ways for point in way.split("L"))
    assert (len(named), len(ways)) == (5, 5)
    assert max(named) < highest
    alone = render_svg(LineChart(title="t", x_title="x", y_title="y", series=lines[:1]))
    assert "line 0" not in alone


def test_no_table_where_no_checkpoint_is_left(tmp_path: Path) -> None:
    """A sentence says how many there were; a bare head of a table says nothing."""
    page = render_report(run_report(summarise(write_run(tmp_path / "one"))), "md", Look(width=140))
    part = page[page.index("## Checkpoints") :].split("## Files")[0]
    assert "gone since, of steps 50 to 100" in part
    assert "|" not in part


def test_memory_and_load_are_drawn_over_the_runs_time(run: RunSummary) -> None:
    """Two charts, in GiB and percent, on a terminal as in HTML; a phone scrolls the charts and folds rows of a table
    with prose into cards, whose cells carry their column's title."""
    text, page = (render_report(run_report(run), form, Look(width=100)) for form in ("table", "html"))
    assert re.search(r"Memory\n.*host, all processes +[\d.]+ [▁-█]+ [\d.]+ +\(minute", text)
    assert re.search(r"Load\n.*processors, by the run", text)
    assert 'aria-label="Memory"' in page
    assert "@media (max-width: 40em)" in page
    events, spend = (page.split(f"<h2>{title}</h2>")[1].split("</table>")[0] for title in ("What happened", "Spend"))
    assert '<table class="cards">' in events
    assert 'data-title="at (UTC)"' in events
    assert "cards" not in spend  # figures stand in columns


def test_checkpoints_that_are_gone_are_told_from_those_kept(tmp_path: Path) -> None:
    """A path in the journal may be relative to the run's folder or whole; a file in its place is no checkpoint."""
    folder = write_run(tmp_path / "one")  # steps 50 and 100, relative
    whole = folder.checkpoints / "step-00000120"
    for path in (folder.checkpoints / "step-00000100", whole):
        path.mkdir()
    (folder.checkpoints / "step-00000130").touch()
    for step in (120, 130):
        folder.record(
            EventKind.CHECKPOINT, who="rank0", step=step, path=f"{folder.checkpoints}/step-{step:08}", bytes=1
        )
    folder.record(EventKind.CHECKPOINT, who="rank0", step=140, path=str(tmp_path / "elsewhere" / "step-00000140"))
    found = {one.step: one.there for one in summarise(folder).checkpoints}
    assert found == {50: False, 100: True, 120: True, 130: False, 140: False}
    assert "3 older ones gone since, of steps 50 to 140" in render_report(run_report(summarise(folder)), "table")


def test_names_in_charts_carry_no_control_characters() -> None:
    """Names of a chart's lines and axes are made visible; its points are left as they are."""
    points = ((0.0, 1.0), (1.0, 2.0))
    chart = LineChart(title="a\x1b", x_title="b\x07", y_title="c\r", series=(("d\x1b[31m", points),))
    shown = visible_page(Page(title="", blocks=(chart,))).blocks[0]
    expected = LineChart(title="a\\x1b", x_title="b\\x07", y_title="c\\r", series=(("d\\x1b[31m", points),))
    assert shown == expected
