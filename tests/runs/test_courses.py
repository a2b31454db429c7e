"""Memory and load over a run's time, from its samples."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.runs.courses import load_courses, memory_courses


def sample(minute: int, **said: Any) -> dict[str, Any]:
    return {"at": f"2026-11-22T10:{minute:02d}:00+00:00", "processes": 1, **said}


def test_each_figure_is_its_own_course() -> None:
    """GiB of the host and of the fullest GPU, of it the run's own part; percent of the processors and GPUs."""
    gpus = [{"index": 0, "memory_used_bytes": 9 << 30, "memory_own_bytes": 4 << 30, "utilization_fraction": 0.8},
            {"index": 1, "memory_used_bytes": 3 << 30, "utilization_fraction": 0.4}]  # fmt: skip
    samples = [
        sample(0, host_rss_bytes=1 << 30, cpu_fraction=0.5, machine_cpu_fraction=0.75),
        sample(3, host_rss_bytes=2 << 30, gpus=gpus),
    ]
    assert dict(memory_courses(samples)) == {
        "host, all processes": ((0.0, 1.0), (3.0, 2.0)), "fullest GPU": ((3.0, 4.0),),
    }  # fmt: skip
    loads = dict(load_courses(samples))
    assert loads["processors, by the run"] == ((0.0, 50.0),)
    assert loads["processors, by others"] == ((0.0, 25.0),)
    assert loads["GPUs"] == ((3.0, pytest.approx(60.0)),)


def test_the_runs_own_supervisor_is_no_other() -> None:
    """0.75 of the processors were taken, 0.5 by the run and 0.2 by those that watch over it."""
    loads = dict(load_courses([sample(0, cpu_fraction=0.5, machine_cpu_fraction=0.75, overhead_cpu_fraction=0.2)]))
    assert loads["processors, by others"] == ((0.0, pytest.approx(5.0)),)


def test_what_was_not_sampled_has_no_course() -> None:
    """A machine without GPUs, or a run without samples, shows nothing in their place."""
    assert memory_courses([]) == load_courses([]) == ()
    assert [name for name, _ in memory_courses([sample(0, host_rss_bytes=1)])] == ["host, all processes"]
