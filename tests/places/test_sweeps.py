"""Sweeps whose trials are jobs of a real Slurm, several at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.testing.slurm import SlurmCluster, missing_binaries, slurm_cluster

pytest.importorskip("optuna")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_binaries()), reason="apt-get install --no-install-recommends slurm-wlm munge"),
]
PLACE = '[places.cluster]\nkind = "slurm"\ncores = 1\nmemory_gib = 1\ntime_limit_minutes = 10\n'
SWEEP = """
sweep:
  parallel: 4
  trials: 6
  objective: {figure: accuracy, direction: maximize}
  parameters:
    run.learning_rate: {low: 1e-4, high: 1e-2, log: true}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def test_each_trial_is_a_job(tmp_path: Path, cluster: SlurmCluster, desk_at: Callable[..., Any]) -> None:
    """Six trials, four at a time, one job each; the best is told."""
    desk = desk_at(tmp_path / "home", PLACE, cluster.environ)
    desk.pretend(steps=20, step_s=0.02)
    desk.tonnage("init", "mlp", "--out", str(tmp_path / "st"))
    [file] = (tmp_path / "st").glob("*.yaml")
    file.write_text(file.read_text() + SWEEP)
    document = json.loads(desk.tonnage("sweep", str(file), "--on", "cluster", "-y", "-o", "json"))
    assert [trial["state"] for trial in document["trials"]] == ["complete"] * 6
    jobs = cluster.command("squeue", "-h", "--states=all", "-o", "%k").splitlines()
    assert len([one for one in jobs if one.startswith("tonnage:")]) == 6
