"""Figures of a run from its folder, and what is said where they miss the prediction."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.calibration.kinds import kind_named
from tonnage.calibration.validating import validate_file
from tonnage.catalog import load_catalog
from tonnage.errors import InputError
from tonnage.runs import EventKind, RunFolder
from tonnage.runs.courses import energy_of
from tonnage.runs.diagnosis import compare, doubts, explain
from tonnage.runs.folder import append_line
from tonnage.runs.measured import Records, measure, measured_rows, read_records
from tonnage.runs.series import read_lines
from tonnage.testing.runs import run_spec, write_run

DAY = datetime(2026, 1, 3, tzinfo=UTC)


def figure(value: float, *, within: float = 0.2) -> dict[str, Any]:
    return {"value": value, "low": value * (1 - within), "high": value * (1 + within), "basis": "computed"}


def read(tmp_path: Path, **changes: Any) -> Records:
    return read_records(write_run(tmp_path / "runs" / "example", **changes))


def test_times_come_from_the_lines(tmp_path: Path) -> None:
    """Median and 90th percentile over steps, warm-up left out; rates over all processes."""
    records = read(tmp_path, step_s=0.1)
    slow_first = ({**records.lines[0], "step_s": 9.0}, {**records.lines[1], "step_s": 0.2}, *records.lines[2:])
    measured = measure(replace(records, lines=slow_first))
    assert (measured.median_step_s, measured.timed_steps) == (0.1, 90)
    assert measured.p90_step_s == 0.2
    assert measured.samples_per_s == pytest.approx(90 * 32 / (80 * 0.1 + 10 * 0.2))
    assert measured.tokens_per_s == pytest.approx(128 * (measured.samples_per_s or 0))
    assert measured.tokens_per_sample == 128
    assert "warm" not in measured.timing
    assert "first logged window" in measured.timing


def test_the_workers_own_times_count_where_it_finished(tmp_path: Path) -> None:
    """It timed each step; lines carry means of ten."""
    own = {"median_step_s": 0.09, "p90_step_s": 0.12, "samples_per_s": 350.0, "tokens_per_s": 44_800.0,
           "data_wait_fraction": 0.01}  # fmt: skip
    measured = measure(read(tmp_path, result=own))
    assert (measured.median_step_s, measured.samples_per_s, measured.data_wait_fraction) == (0.09, 350.0, 0.01)
    assert "step by step" in measured.timing


def test_each_attempt_warms_up(tmp_path: Path) -> None:
    """A restart begins anew: its first line is left out too, and re-done steps are counted."""
    measured = measure(read(tmp_path, killed=True))
    assert (measured.restarts, measured.lost_steps, measured.timed_steps) == (1, 10, 90)


def test_four_memories_are_four_figures(tmp_path: Path) -> None:
    """Allocated, reserved, device and host are each their own peak."""
    measured = measure(read(tmp_path))
    peaks = (measured.peak_allocated_bytes, measured.peak_reserved_bytes, measured.peak_device_bytes)
    assert [size and size >> 30 for size in peaks] == [9, 10, 11]
    assert (measured.peak_process_rss_bytes, measured.peak_host_rss_bytes) == (3 << 30, 4 << 30)


def test_money_is_unknown_without_a_price(tmp_path: Path) -> None:
    """Ten seconds for 3.60 dollars an hour are a billed minute: six cents; without a price they are not free."""
    assert measure(read(tmp_path)).usd == pytest.approx(0.06)
    spec = replace(run_spec(), guard=replace(run_spec().guard, usd_per_hour=None))
    assert measure(read_records(write_run(tmp_path / "other", spec))).usd is None


def test_energy_is_the_counters_growth(tmp_path: Path) -> None:
    """600 W over the nine seconds between ten samples; a driver loaded anew sets the counter to 0."""
    samples = list(read(tmp_path).samples)
    found = energy_of(samples)
    assert found
    assert (found.joules, found.basis) == (pytest.approx(5400), "counter")
    again = [
        {**one, "gpus": [{**one["gpus"][0], "energy_j": 100.0 * (place % 5)}]} for place, one in enumerate(samples)
    ]
    assert energy_of(again).joules == pytest.approx(800)  # type: ignore[union-attr]


def test_energy_without_a_counter_is_power_over_time(tmp_path: Path) -> None:
    """Trapezoids; a pause in which nothing was sampled is not counted; a GPU that tells nothing makes it unknown."""
    samples = [{**one, "gpus": [{"index": 0, "power_w": power}]}
               for one, power in zip(read(tmp_path).samples, [0.0, *[600.0] * 9], strict=True)]  # fmt: skip
    found = energy_of(samples)
    assert found
    assert (found.joules, found.basis) == (pytest.approx(300 + 8 * 600), "power over time")
    later = [{**one, "at": one["at"].replace("T12:", "T15:")} for one in samples]
    assert energy_of([*samples, *later]).joules == pytest.approx(2 * found.joules)  # type: ignore[union-attr]
    silent = [{**one, "gpus": [*one["gpus"], {"index": 1}]} for one in samples]
    assert energy_of(silent) is None
    assert energy_of([{"at": one["at"]} for one in samples]) is None


def test_a_run_that_did_nothing_yet_has_no_figures(tmp_path: Path) -> None:
    """Nothing is zero that was not measured."""
    folder = RunFolder(tmp_path / "example")
    folder.create(run_spec())
    measured = measure(read_records(folder))
    assert (measured.median_step_s, measured.samples_per_s, measured.seconds, measured.energy) == (None,) * 4
    assert measured_rows(folder, DAY) == []


def test_a_cut_line_is_no_line(tmp_path: Path) -> None:
    """A kill in the middle of a line hides nothing before or after it; nonsense in the middle is named."""
    folder = write_run(tmp_path / "example")
    count = sum(1 for _ in read_lines(folder.metrics_file))
    with folder.metrics_file.open("a") as file:
        file.write('{"step": 110, "lo')
    assert sum(1 for _ in read_lines(folder.metrics_file)) == count
    append_line(folder.metrics_file, '{"step": 120}')
    lines = list(read_lines(folder.metrics_file))
    assert [line.values["step"] for line in lines[-2:]] == [100, 120]
    assert list(read_lines(folder.metrics_file, lines[-2].end)) == lines[-1:]
    append_line(folder.metrics_file, "nonsense")
    with pytest.raises(InputError, match=r"metrics.jsonl, byte \d+"):
        read_records(folder)


# predicted beside measured


def test_figures_inside_their_interval_need_no_reason(tmp_path: Path) -> None:
    """Rate, memory, time and cost are set beside the matching measurement, and it is said which one; the cost is of
    the ten seconds in steps, not the minute that is billed."""
    prediction = {"figures": {"samples_per_s": figure(300), "peak_memory_gib": figure(10), "time_s": figure(9),
                              "cost_usd": figure(0.0095), "tokens_per_s": None}}  # fmt: skip
    records = read(tmp_path, prediction=prediction, step_s=0.1)
    measured = measure(records)
    compared = compare(records, measured)
    assert [one.inside for one in compared] == [True] * 4
    assert {one.key: one.read_as for one in compared}["peak_memory_gib"] == "whole device (NVML)"
    assert explain(records, measured, compared) == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"line": {"data_wait_s": 0.05}}, "25 % of the step time was waiting for data"),
        ({"sample": {"machine_cpu_fraction": 0.9}}, "other processes took 40 % of its processors"),
        ({"gpu": {"throttled_by": "temperature", "temperature_c": 88.0}}, "held its clocks back for temperature"),
        ({"tokens_per_sample": 256}, "texts had 256 tokens on average, 128 were stated"),
    ],
)
def test_a_slow_run_says_why(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    """Half the predicted rate: what was measured beside it names the cause, and only that."""
    prediction = {"figures": {"samples_per_s": figure(320)}, "lengths": {"mean": 128}}
    records = read(tmp_path, step_s=0.2, prediction=prediction, **changes)
    measured = measure(records)
    (found,) = explain(records, measured, compare(records, measured))
    assert reason in found


def test_shorter_texts_do_not_excuse_a_slow_run(tmp_path: Path) -> None:
    """A reason must point the way the figure is off; where none does, the prediction itself is said to be off."""
    prediction = {"figures": {"samples_per_s": figure(320)}, "lengths": {"mean": 512}}
    records = read(tmp_path, step_s=0.2, prediction=prediction)
    measured = measure(records)
    (found,) = explain(records, measured, compare(records, measured))
    assert "nothing that was measured explains it" in found
    assert "-50 %" in found


def test_halved_micro_batches_and_restarts_are_named(tmp_path: Path) -> None:
    """The journal explains what the figures cannot."""
    prediction = {"figures": {"peak_memory_gib": figure(40), "time_s": figure(1)}}
    folder = write_run(tmp_path / "example", killed=True, prediction=prediction, step_s=0.5)
    folder.record(EventKind.OUT_OF_MEMORY, who="rank0", micro_batch=32, next_micro_batch=16, longest_tokens=512)
    records = read_records(folder)
    measured = measure(records)
    said = explain(records, measured, compare(records, measured))
    assert any("micro-batch went down to 16" in one for one in said)
    assert any("1 restart, 10 steps done again" in one for one in said)


# rows of facts


def test_rows_are_read_back_and_predicted(tmp_path: Path) -> None:
    """`validate training` reads every row, predicts rate and memory on the H100 of the catalog, and skips none."""
    rows = measured_rows(write_run(tmp_path / "example", step_s=0.2), DAY)
    assert [tuple(row) for row in rows] == [TRAINING_COLUMNS] * 4
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, TRAINING_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    found = validate_file(kind_named("training"), path, load_catalog(), None)
    assert (found.rows, found.predicted, found.skipped) == (4, 4, ())
    assert {line.metric for line in found.metrics} == {"sequences_per_s", "peak_mem_gib"}


def test_rows_say_what_they_are_of(tmp_path: Path) -> None:
    """Metric, reading of memory, sizes, versions and date stand in their columns."""
    rate, allocated, reserved, device = measured_rows(write_run(tmp_path / "example", step_s=0.2), DAY)
    assert (rate["metric"], float(rate["value"]), rate["seq_len"]) == ("sequences_per_s", 160.0, "128")
    assert [row["mem_kind"].split(" ")[0] for row in (allocated, reserved, device)] == [
        "allocated", "reserved", "nvidia-smi"]  # fmt: skip
    assert [float(row["value"]) for row in (allocated, reserved, device)] == [9, 10, 11]
    assert (rate["gpu"], rate["n_gpus"], rate["n_layers"]) == ("NVIDIA H100 80GB HBM3", "1", "12")
    assert (rate["micro_batch_per_gpu"], rate["grad_accum"], rate["precision"]) == ("32", "1", "bf16")
    assert "measured 2026-01-02; objective=classification; saves=beside; torch 2.13.0" in rate["note"]
    assert rate["quality"] == "ok"
    assert len({row["id"] for row in (rate, allocated, reserved, device)}) == 4
    assert rate == measured_rows(RunFolder(tmp_path / "example"), DAY)[0]


def test_a_shortage_of_memory_is_a_row(tmp_path: Path) -> None:
    """The micro-batch that did not fit, and the one that then did."""
    folder = write_run(tmp_path / "example", step_s=0.2)
    folder.record(EventKind.OUT_OF_MEMORY, who="rank0", micro_batch=32, next_micro_batch=16, longest_tokens=512)
    fits = [row for row in measured_rows(folder, DAY) if row["metric"] == "fits"]
    assert [(row["value"], row["micro_batch_per_gpu"], row["grad_accum"], row["seq_len"]) for row in fits] == [
        ("0", "32", "1", "512"), ("1", "16", "2", "128")]  # fmt: skip


def test_others_count_while_steps_are_taken(tmp_path: Path) -> None:
    """A machine that was busy before the first step was not busy for the steps."""
    records = read_records(write_run(tmp_path / "example", on_gpu=False))
    before = {"at": "2000-01-01T00:00:00+00:00", "cpu_fraction": 0.0, "machine_cpu_fraction": 1.0}
    assert measure(records).other_cpu_fraction == pytest.approx(0.02)
    assert measure(replace(records, samples=(before, *records.samples))).other_cpu_fraction == pytest.approx(0.02)


def test_doubtful_rows_say_so(tmp_path: Path) -> None:
    """A short run on a busy machine is kept, but apart from those that are fitted to."""
    folder = write_run(tmp_path / "example", step_s=0.001, sample={"machine_cpu_fraction": 0.9}, on_gpu=False)
    rows = measured_rows(folder, DAY)
    assert [row["quality"] for row in rows] == ["suspect", "ok"]  # memory is what it is on a busy machine too
    assert "suspect: the machine was busy" in rows[0]["note"]
    assert "suspect: a short run" in rows[0]["note"]
    assert rows[1]["mem_kind"].startswith("host RSS")
    records = read_records(folder)
    assert len(doubts(records, measure(records))) == 2


def test_workers_that_the_supervisor_does_not_see(tmp_path: Path) -> None:
    """Its processes held less memory than a worker says of itself: what looks like others may be the run's own."""
    unseen = {"machine_cpu_fraction": 0.9, "cpu_fraction": 0.0, "host_rss_bytes": 40 << 20}
    records = read_records(write_run(tmp_path / "example", sample=unseen, on_gpu=False))
    (said,) = doubts(records, measure(records))
    assert said == "another program started the workers (srun): what others took of the processors is not known"


def test_tables_have_no_rows_in_these_facts(tmp_path: Path) -> None:
    """Boosted trees are not in the columns of network training."""
    folder = write_run(tmp_path / "example", replace(run_spec(), task="boosted-trees"))
    assert measured_rows(folder, DAY) == []


def test_a_processor_is_named_as_its_profile(tmp_path: Path) -> None:
    """Rows of a run that a device profile predicted go back into that profile: its name, threads and spread."""
    prediction = {"device": "local-amd-epyc-2c", "figures": {}}
    own = {"median_step_s": 0.2, "p90_step_s": 0.25, "samples_per_s": 160.0, "threads": 2}
    folder = write_run(tmp_path / "example", step_s=0.2, on_gpu=False, prediction=prediction, result=own)
    rate, memory = measured_rows(folder, DAY)
    assert (rate["gpu"], memory["gpu"]) == ("local-amd-epyc-2c",) * 2
    assert re.findall(r"\b(threads|log_sd|objective)=([\w.-]+)", rate["note"]) == [
        ("objective", "classification"), ("threads", "2"), ("log_sd", "0.1741")]  # fmt: skip
    assert (float(memory["value"]), memory["mem_kind"]) == (3.0, "host RSS of one process")
