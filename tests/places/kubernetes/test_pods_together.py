"""Two pods of one run as processes that share a folder: how many workers there are, with which ranks, and their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tonnage.places.record import PlaceRecord
from tonnage.runs import RunFolder
from tonnage.runs.agents import across_by_environment
from tonnage.runs.job import Job, dump_job
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, dump_spec
from tonnage.supervisor.members import free_port

pytestmark = pytest.mark.slow
LONGEST_S = 180.0
WORKER = """
import json, os, sys
from pathlib import Path
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
told = {name: int(os.environ[name]) for name in names}
Path(sys.argv[1], f"rank-{told['RANK']}.json").write_text(json.dumps(told))
"""


def test_the_processes_of_a_run_are_shared_out_over_its_pods(tmp_path: Path) -> None:
    """Four in all and not four in each: ranks from 0 to 3, two of them in each pod. Both pods end with the run."""
    there, told = tmp_path / "there", tmp_path / "told"
    told.mkdir()
    (tmp_path / "worker.py").write_text(WORKER)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1", "--nproc-per-node", "4",
                "--max-restarts", "0", str(tmp_path / "worker.py"), str(told))  # fmt: skip
    job = across_by_environment(Job(runner="torchrun", argv=launcher, processes=4), nodes=2)
    spec = RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv")))
    record = PlaceRecord(place="p", kind="kubernetes", token="t", tag="tonnage:h:t:run", number=1)
    sent = tmp_path / "sent"
    sent.mkdir()
    texts = {"spec.json": dump_spec(spec), "job.json": dump_job(job), "place.json": json.dumps(asdict(record))}
    for name, text in texts.items():
        (sent / name).write_text(text)
    words = [sys.executable, "-m", "tonnage.supervisor.pod", "--run", str(there), "--sent", str(sent), "--nodes", "2",
             "--host", "127.0.0.1", "--port", str(free_port()), "--token", "t"]  # fmt: skip
    pods = []
    for index in range(2):
        env = {**os.environ, "JOB_COMPLETION_INDEX": str(index), "MLFLOW_TRACKING_URI": "none"}
        pods.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [pod.communicate(timeout=LONGEST_S)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said
    assert RunFolder(there).state().state.value == "succeeded", said
    ranks = [json.loads(file.read_text()) for file in sorted(told.iterdir())]
    assert [one["RANK"] for one in ranks] == [0, 1, 2, 3]
    assert {one["WORLD_SIZE"] for one in ranks} == {4}
    assert {one["LOCAL_WORLD_SIZE"] for one in ranks} == {2}
    assert sorted((one["GROUP_RANK"], one["LOCAL_RANK"]) for one in ranks) == [(0, 0), (0, 1), (1, 0), (1, 1)]
