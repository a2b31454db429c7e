"""A run that was resumed with other processes or on another device: which steps were done how."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tonnage.files import write_whole
from tonnage.reports.rendering import render_report
from tonnage.reports.run_report import run_report
from tonnage.runs import EventKind, RunFolder
from tonnage.runs.folder import append_values
from tonnage.runs.journal import Event
from tonnage.runs.measured import measure, measured_rows, read_records
from tonnage.runs.spec import LaunchSpec, dump_spec
from tonnage.runs.states import RunStatus, state_of
from tonnage.runs.stretches import stretches_of
from tonnage.runs.summary import summarise
from tonnage.testing.runs import NOON, run_spec, write_run

LAUNCH = LaunchSpec()


def events(*said: tuple[EventKind, dict[str, Any]]) -> list[Event]:
    return [
        Event(kind=kind, at=NOON + timedelta(minutes=at), who="x", fields=fields)
        for at, (kind, fields) in enumerate(said)
    ]


def submitted(processes: int) -> tuple[EventKind, dict[str, Any]]:
    return EventKind.SUBMITTED, {"runner": "torchrun", "processes": processes, "device": "cpu"}


def test_a_resume_that_asks_for_the_same_is_no_new_stretch() -> None:
    """By what it asks for, not by the submission; journals that say nothing have one stretch."""
    done = (EventKind.TRAINING, {"step": 0}), (EventKind.STOPPED, {"step": 50})
    assert len(stretches_of(events(submitted(1), *done, submitted(1)), LAUNCH)) == 1
    assert len(stretches_of(events((EventKind.SUBMITTED, {}), *done, (EventKind.SUBMITTED, {})), LAUNCH)) == 1
    first, second = stretches_of(events(submitted(1), *done, submitted(2)), LAUNCH)
    assert (first.processes, first.since, second.processes, second.step) == (1, None, 2, 50)
    assert second.since == NOON + timedelta(minutes=3)


def test_a_stretch_without_steps_is_none() -> None:
    """What was asked for and never begun is not told; steps done again are the later stretch's."""
    kept = stretches_of(events(submitted(1), submitted(4), submitted(2)), LAUNCH)
    assert [one.processes for one in kept] == [2]
    again = events(
        submitted(1), (EventKind.STOPPED, {"step": 57}), submitted(2), (EventKind.RESUMED, {"step": 50})
    )  # fmt: skip
    assert [one.step for one in stretches_of(again, LAUNCH)] == [0, 50]


def resumed_with_two(tmp_path: Path) -> RunFolder:
    """100 steps alone at 0.1 s; then 20 over two processes at 0.01 s, which end the run."""
    figure = {"value": 9.0, "low": 8.0, "high": 10.0, "basis": "computed"}
    folder = write_run(tmp_path / "one", finished=False, prediction={"device": "x", "figures": {"time_s": figure}})
    at = NOON + timedelta(seconds=11)
    spec = replace(run_spec("one"), launch=LaunchSpec(runner="torchrun", processes=2, device="cpu"))
    write_whole(folder.spec_file, dump_spec(spec))
    folder.record(EventKind.SUBMITTED, who="cli", at=at, runner="torchrun", processes=2, device="cpu")
    folder.record(EventKind.STARTED, who="supervisor", at=at, attempt=2, pid=3)
    folder.record(EventKind.RESUMED, who="rank0", at=at, step=100, path="p")
    for step in (110, 120):
        at += timedelta(seconds=1)
        append_values(folder.metrics_file, {
            "step": step, "at": at.isoformat(), "loss": 0.1, "steps": 10, "samples": 32, "tokens": 32 * 128,
            "step_s": 0.01, "data_wait_s": 0.0, "host_rss_bytes": 1 << 30})  # fmt: skip
    folder.record(EventKind.SUCCEEDED, who="supervisor", at=at, step=120)
    return folder


def test_measured_figures_are_of_one_configuration(tmp_path: Path) -> None:
    """Rates and peaks are the newest configuration's; no row has steps of the other one; the time of both together is
    compared with nothing."""
    folder = resumed_with_two(tmp_path)
    measured = measure(read_records(folder))
    assert (measured.processes, measured.median_step_s, measured.since_step) == (2, 0.01, 100)
    assert measured.peak_allocated_bytes is None  # the 9 GiB were one process's
    assert measured.peak_process_rss_bytes == 1 << 30
    rows = measured_rows(folder, datetime(2026, 1, 3, tzinfo=UTC))
    assert {row["n_gpus"] for row in rows} == {"2"}
    assert {row["metric"] for row in rows} == {"sequences_per_s", "peak_mem_gib"}
    run = summarise(folder)
    (time_s,) = [one for one in run.compared if one.key == "time_s"]
    assert time_s.measured is None
    assert "step 100" in time_s.read_as


def test_show_says_what_came_before(tmp_path: Path) -> None:
    """The page names the steps done otherwise."""
    page = render_report(run_report(summarise(resumed_with_two(tmp_path))), "md")
    assert "steps 0 to 100 on 1 process (local, auto)" in page
    assert "2 processes (torchrun)" in page


def test_a_run_stands_where_its_newest_start_says() -> None:
    """Steps lost by a kill are not counted, and the end says the same step as the fold of all that came before it."""
    story = events(
        (EventKind.TRAINING, {"step": 0, "total_steps": 100}), (EventKind.EVALUATED, {"step": 57}),
        (EventKind.STARTED, {}), (EventKind.RESUMED, {"step": 50}), (EventKind.EVALUATED, {"step": 52}),
    )  # fmt: skip
    assert state_of(story[:2]).step == 57
    assert state_of(story).step == 52
    ended = state_of([*story, *events((EventKind.FAILED, {"step": 53}))])
    assert (ended.state, ended.step) == (RunStatus.FAILED, 53)
    best = state_of([*story, *events((EventKind.BEST, {"step": 20}))])
    assert best.step == 52  # which weights are taken up moves no step
