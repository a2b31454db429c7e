"""The report of a bench of engines: what stands on the page, in JSON and in the rows."""

from __future__ import annotations

from dataclasses import replace

from tonnage.reports.engine_bench import ROW_COLUMNS, SCHEMA, engine_bench_report
from tonnage.reports.html import render_html
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.power import CellPower
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, Host, sum_up

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
