"""The report of a bench of engines: what stands on the page, in JSON and in the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tonnage.reports.engine_bench import engine_bench_report
from tonnage.reports.engine_bench_rows import ROW_COLUMNS, SCHEMA
from tonnage.reports.html import render_html
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.power import CellPower
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, sum_up

SPEC = read_bench("""bench:
  name: a
  repeats: 1
  data: [{name: d, generate: {rows: 1000, columns: 10}, target: 0.8}]
  engines: [{engine: xgboost}, {engine: catboost}, {engine: lightgbm}]
""")
HOST = Host(processor="test", physical_cores=1, logical_cores=2, memory_bytes=8 * 2**30, arm=False)
GOOD = BenchCell(
    data="d", engine="xgboost", turn=0, startup_s=2.0, load_s=0.1, warmup_s=0.3, prepare_s=1.0, train_s=4.0, cpu_s=4.0,
    quality=0.91, train_rows=700, peak_rss_bytes=2**30, curve=((50, 2.0, 0.85), (100, 4.0, 0.9)),
    versions={"xgboost": "3.2.0"}, busy_before_cores=0.1,
)  # fmt: skip
SLOW = replace(GOOD, engine="lightgbm", train_s=8.0, curve=((50, 4.0, 0.85), (100, 8.0, 0.9)))
FAILED = BenchCell(data="d", engine="catboost", turn=0, reason="ended by SIGKILL", busy_before_cores=0.1)


def found(*cells: BenchCell) -> BenchResult:
    return BenchResult(
        spec=SPEC, host=HOST, rows=sum_up(SPEC, cells, HOST, {"d": 10}), cells=cells, cells_asked=3,
        digests={"d": {"train": "0" * 64}}, shapes={"d": (700, 10)},
    )  # fmt: skip


def test_the_first_at_the_target_is_on_top() -> None:
    """The page says who is first, names a failure with its reason, and that dollars are unknown without a price."""
    text = render_report(engine_bench_report(found(SLOW, GOOD, FAILED)), "table")
    assert "xgboost is first at auc 0.8, after 3 s" in text
    assert text.index("xgboost  ") < text.index("lightgbm  ")
    assert "d, catboost: 1 cell: ended by SIGKILL" in text
    assert "dollars are unknown" in text
    assert "quiet machine" not in text


def test_a_busy_machine_is_said_at_the_top() -> None:
    """Times of a machine that others use are not relied on."""
    text = render_report(engine_bench_report(found(replace(GOOD, busy_before_cores=1.5))), "table")
    assert "up to 1.50 cores busy" in text.split("training rows")[0]


def test_programs_beside_a_cell_are_said_too() -> None:
    """A machine that was quiet before the cells and busy during them; what others took stands beside the phases."""
    cells = [replace(GOOD, busy_during_cores=0.1), replace(SLOW, busy_during_cores=1.2)]
    text = render_report(engine_bench_report(found(*cells)), "table")
    words = " ".join(text.split())
    assert "took up to 1.20 of a cell's own cores during 1 of 2 cells" in words.split("training rows")[0]
    assert "OMP_WAIT_POLICY=passive" in words
    passive = replace(found(*cells), sessions=({"settings in the environment": "OMP_WAIT_POLICY=passive"},))
    assert "at full speed" not in render_report(engine_bench_report(passive), "table")
    assert "cores that others took" in text
    assert "1.20" in text.split("cores that others took")[1].split("predicted")[0]


def test_the_page_says_whom_the_first_is_faster_than() -> None:
    """One repeat shows nothing; three that agree do. In JSON the pair has ratio and confidence."""
    once = render_report(engine_bench_report(found(GOOD, SLOW)), "table")
    assert "after 3 s (one repeat only: no confidence)." in " ".join(once.split())
    cells = [replace(one, turn=turn, train_s=(one.train_s or 0) * (1 + turn / 100))
             for one in (GOOD, SLOW) for turn in range(3)]  # fmt: skip
    report = engine_bench_report(found(*cells))
    assert "(faster than lightgbm)." in render_report(report, "table")
    assert "yes (confidence 99 %)" in render_report(report, "table")
    (pair,) = report.document()["faster"]
    assert (pair["first"], pair["other"], pair["shared_repeats"], pair["faster"]) == ("xgboost", "lightgbm", 3, True)
    assert report.document()["not_compared"] == []


def test_an_engine_with_a_failed_repeat_is_not_first() -> None:
    """It is named with its failures, in the headline, on the page and in JSON; alone, nobody is first."""
    cells = [GOOD, SLOW, replace(SLOW, turn=1), replace(GOOD, turn=1, reason="out of time")]
    report = engine_bench_report(found(*cells))
    words = " ".join(render_report(report, "table").split())
    assert "lightgbm is first at auc 0.8" in words
    assert "(not compared: xgboost, of whose 2 repeats 1 failed)" in words
    assert "Not compared: xgboost, of whose 2 repeats 1 failed." in words
    left = {"data": "d", "engine": "xgboost", "repeats": 2, "failed": 1, "missed_target": 0}
    assert report.document()["not_compared"] == [left]
    alone = render_report(engine_bench_report(found(cells[0], cells[3])), "table")
    assert "no engine came to auc 0.8 in every repeat (not compared: xgboost" in " ".join(alone.split())


def test_what_is_not_measured_yet_is_predicted() -> None:
    """Before the first cell the page has each engine's prediction, and calls nothing measured or failed."""
    rows = sum_up(SPEC, (), HOST, {"d": 10}, train_rows={"d": 700})
    before = replace(found(), rows=rows)
    text = render_report(engine_bench_report(before), "table")
    assert "d: nothing is measured yet." in text
    assert "other programs before a cell" not in text
    assert "versions" not in text
    assert {row.engine.name for row in rows if row.predicted_s is not None} == {"xgboost", "lightgbm", "catboost"}
    assert all(f"  {name} " in text.split("measured / predicted")[1] for name in ("xgboost", "lightgbm", "catboost"))


def test_keys_of_the_json_are_described() -> None:
    """docs/json.md has every key of the document and of its parts."""
    document = engine_bench_report(found(GOOD, SLOW)).document()
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    described = page.split(f"## {SCHEMA}\n")[1].split("\n## ")[0]
    inner = [*document["data"][0], *document["engines"][0], *document["faster"][0], "missed_target"]
    power = {name for name in inner if name.startswith(("cpu_", "gpu_"))}
    assert {name for name in [*document, *inner] if f"`{name}`" not in described} == power


def test_times_without_others_stand_beside_the_prediction() -> None:
    """One of two cores was another program's: with both it takes half as long, as an estimate. Of a repeat
    that does not know, nothing is said."""
    busy = replace(GOOD, busy_during_cores=1.0)  # 4 s of processor time in 4 s of training
    report = engine_bench_report(found(busy))
    assert report.document()["engines"][0]["alone_s"]["value"] == 2.5
    words = " ".join(render_report(report, "table").split())
    assert "besides its own: an estimate; programs whose threads or workers wait for one another gain more" in words
    row = next(line for line in render_report(report, "csv").splitlines() if "work_s" in line)
    assert "busy_during_cores=1.00" in row
    unknown = engine_bench_report(found(busy, replace(GOOD, turn=1)))
    assert unknown.document()["engines"][0]["alone_s"] is None


def test_columns_that_nobody_knows_are_left_out() -> None:
    """Of clocks, power and energy those stand that some engine has; none, and no table, without any."""
    power = CellPower(cpu_clock_hz=2.5e9)
    text = render_report(engine_bench_report(found(replace(GOOD, power=power))), "table")
    assert "CPU MHz" in text
    assert "GPU J" not in text
    assert "CPU MHz" not in render_report(engine_bench_report(found(GOOD)), "table")


def test_engines_far_apart_are_all_seen() -> None:
    """Along seconds the quick one would be a line at the edge: equal factors are equally far apart then."""
    slow = replace(SLOW, curve=((50, 100.0, 0.85), (100, 200.0, 0.9)))
    assert ">2</text>" in render_html(engine_bench_report(found(GOOD, slow)).page())
    assert ">200</text>" in render_html(engine_bench_report(found(GOOD, slow)).page())
    assert ">200</text>" not in render_html(engine_bench_report(found(GOOD, SLOW)).page())


def test_sessions_with_other_settings_are_both_said() -> None:
    """A bench that went on under another precedence says so."""
    sessions = ({"measured": "day one", "nice value": "0"}, {"measured": "day two", "nice value": "10"})
    text = render_report(engine_bench_report(replace(found(GOOD), sessions=sessions)), "table")
    assert "0; then 10" in text
    assert "day one; then day two" in text


def test_json_and_rows_carry_every_figure() -> None:
    """A failed cell has null for figures, never 0, and no rows; each row is in the columns of measured rows."""
    report = engine_bench_report(found(GOOD, FAILED))
    document = report.document()
    assert document["schema"] == SCHEMA
    good, failed = document["engines"]
    assert good["to_target_s"]["value"] == 3.0
    assert good["usd_to_target"] is None
    assert failed["work_s"] is None
    assert failed["reason"] == "ended by SIGKILL"
    rows = [dict(zip(report.columns, row, strict=True)) for row in report.rows()]
    assert tuple(report.columns) == ROW_COLUMNS
    assert {row["model"] for row in rows} == {"xgboost"}
    assert {row["metric"]: row["value"] for row in rows}["rows_per_s"] == 700 * 100 / 4.0


def test_rows_have_what_is_known_of_power() -> None:
    """A row for each clock, power and energy that the system tells, none for the others; what held clocks down is
    said."""
    power = CellPower(cpu_clock_hz=2.5e9, gpu_energy_j=900.0, throttled_by="")
    report = engine_bench_report(found(replace(GOOD, power=power)))
    rows = [dict(zip(report.columns, row, strict=True)) for row in report.rows()]
    told = {row["metric"]: row["value"] for row in rows if row["metric"].startswith(("cpu_", "gpu_"))}
    assert told == {"cpu_clock_hz": 2.5e9, "gpu_energy_j": 900.0}
    assert all("throttled_by=nothing" in row["note"] for row in rows)


def test_the_page_holds_a_chart_a_data_set() -> None:
    """Quality over time, each engine a line that differs in colour and dash."""
    page = render_html(engine_bench_report(found(GOOD, SLOW)).page())
    assert page.count("<svg") == 1
    assert "auc on the validation rows" in page
    assert ">xgboost</text>" in page
