"""The doctor's look at the machine: what is amiss comes with what mends it, and nothing raises."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.api import machine_examination as doctor
from tonnage.api.machine_examination import examine_machine
from tonnage.benchmarks.engines.worker_process import MARK
from tonnage.benchmarks.machine import processor_features
from tonnage.reports.environment import Check


def by_name(checks: object) -> dict[str, Check]:
    return {one.name: one for one in checks}  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_every_look_answers(tmp_path: Path) -> None:
    """On any machine, with an empty home: a status each, and for what is optional and missing how to get it."""
    checks = by_name(examine_machine(tmp_path / "home"))
    assert {"processor", "torch build", "rocm", "metal", "java", "disk", "other programs"} <= checks.keys()
    assert checks["environment h2o"].advice == "tonnage bench setup h2o"
    assert all(one.found for one in checks.values())
    assert all(one.advice for one in checks.values() if one.status != "ok")


def test_amx_and_sve_are_reported() -> None:
    """Units are named as their vendors name them; a file without flags names none."""
    assert "AMX bf16" in processor_features("flags : fpu avx2 amx_tile amx_bf16\n")
    assert processor_features("Features : fp asimd sve2 i8mm\n") == ("NEON", "Arm int8", "SVE2")
    assert processor_features("processor : 0\n") == ()


def test_a_processor_build_of_torch_beside_a_gpu_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would compute on the processor in silence."""
    monkeypatch.setattr(doctor, "version", lambda _: "2.13.0+cpu")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "nvidia-smi" else None)
    found = doctor._torch_build()
    assert (found.status, found.found) == ("problem", "2.13.0+cpu, beside a GPU")
    assert "CUDA build" in found.advice
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    assert doctor._torch_build().status == "ok"


def test_a_taken_port_says_which_option_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken is a notice, not a problem: the program on it may well be ours."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: ("serve", "tonnage serve --port")})
        (taken,) = doctor._ports()
    assert (taken.status, taken.advice) == ("notice", "tonnage serve --port N")
    (free,) = doctor._ports()
    assert free.status == "ok"


def test_an_environment_that_was_not_finished_is_a_problem(tmp_path: Path) -> None:
    """A set-up that was killed leaves a folder without the mark of its trial."""
    folder = tmp_path / "bench-environments" / "h2o"
    folder.mkdir(parents=True)
    checks = by_name(doctor._environments(tmp_path))
    assert checks["environment h2o"].status == "problem"
    assert checks["environment sparkling"].status == "missing"
    assert checks["environment ray"].advice == "tonnage bench setup ray"
    (folder / "ready").write_text("")
    assert by_name(doctor._environments(tmp_path))["environment h2o"].status == "ok"


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a GiB; the free space is that of the place where the home will be."""
    assert doctor._disk(tmp_path / "not" / "yet").status == "ok"
    monkeypatch.setattr(doctor, "LEAST_FREE_GIB", 1e9)
    found = doctor._disk(tmp_path)
    assert found.status == "problem"
    assert "TONNAGE_HOME" in found.advice


@pytest.mark.heavy
def test_processes_of_a_killed_bench_are_found(tmp_path: Path) -> None:
    """By the mark in their environment; `bench clean` ends them. Those of a bench that runs are its own."""
    bench = tmp_path / "benches" / "one"
    bench.mkdir(parents=True)
    left = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
                            env=os.environ | {MARK: str(bench)}, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert left.stdout is not None
        left.stdout.readline()
        found = doctor._left_processes(tmp_path)
        assert found.status == "problem"
        assert "1 of one" in found.found
        assert found.advice == "tonnage bench clean"
    finally:
        left.kill()
        left.communicate()
    assert doctor._left_processes(tmp_path).status == "ok"
