"""Write docs/recordings/run-on-slurm-preempted.txt: a run on two nodes of Slurm that is preempted, requeued and goes
on; the same file as a dry run at six other kinds of place; and what a client that is killed leaves.

Run: `python docs/record_place.py` (needs the extra `train`, and Debian's slurm-wlm and munge; about five minutes). The
scheduler is real and runs on this machine; its nodes are two daemons of it. The places of the dry runs are those of
docs/places.md. The commands are real and so is what they print; the home is shown as `~/tonnage`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from record_run import Recorder

from tonnage.testing.slurm import SlurmCluster, slurm_cluster

TARGET = Path(__file__).parent / "recordings" / "run-on-slurm-preempted.txt"
RUN, FILE = "review", "sequence-classification.tonnage.yaml"
HERE = """[places.two]
kind = "slurm"
nodes = 2
cores = 1
memory_gib = 2
time_limit_minutes = 10
grace_s = 25
usd_per_hour = 3.0
like_this_machine = true
"""
DRY = {"train": "kubernetes", "sky": "skypilot", "sm": "sagemaker", "vm": "ec2", "gpu": "gce", "db": "databricks"}
LONGEST_S = 300.0


def page_places() -> str:
    """The places of docs/places.md that are shown as dry runs."""
    page = (Path(__file__).parent / "places.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    return "\n".join(one for one in blocks if any(f"[places.{name}]" in one for name in DRY))


def wait(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        if time.monotonic() > until:
            sys.exit(f"{what}: not within {LONGEST_S:g} s")
        time.sleep(0.2)


def record(recorder: Recorder, cluster: SlurmCluster) -> None:
    journal = recorder.home / "runs" / RUN / "journal.jsonl"

    def kinds() -> list[str]:
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [str(json.loads(line)["kind"]) for line in lines]

    recorder.run("tonnage init sequence-classification --out st")
    edits = "s/log_every: 5/log_every: 1/; s/epochs: 3/epochs: 30/; s/every_steps: 50/every_steps: 100/"
    recorder.run(f"sed -i '{edits}' {FILE}", place="st")
    recorder.run("tonnage calibrate --local --quick | head -6")
    recorder.note(
        "the plan: what could be rented for it; here it goes to the cluster at hand, whose nodes are as this one"
    )
    recorder.run(f"tonnage plan st/{FILE} | head -40")
    recorder.run(f"head -9 {recorder.home}/places.toml")
    recorder.run("tonnage places check two")
    words = f"--on two --runner torchrun --processes 2 --name {RUN}"
    recorder.run(f"tonnage run st/{FILE} {words} --dry-run | head -20")
    recorder.run(f"tonnage run st/{FILE} {words} --detach -y")
    wait(lambda: "checkpoint" in kinds(), "a checkpoint")
    recorder.run("squeue -o '%i %P %j %T %D %N'")
    recorder.note("a job of a higher partition takes both nodes")
    recorder.run("sbatch -p urgent -N2 --exclusive -o /dev/null --wrap 'sleep 20'")
    wait(lambda: "restarting" in kinds(), "the preemption")
    wait(lambda: "PREEMPT" in queue(cluster) or "PENDING" in queue(cluster), "the requeue")
    recorder.run("squeue -o '%i %P %j %T %D %R'")
    recorder.run("tonnage ps")
    wait(lambda: bool(kinds()) and kinds()[-1] in {"succeeded", "failed", "measured"}, "the end")
    recorder.run("tonnage ps --all")
    recorder.run(f"tonnage show {RUN}")
    orphan(recorder)
    dry_runs(recorder)


def queue(cluster: SlurmCluster) -> str:
    return cluster.command("squeue", "-h", "-p", "batch", "-o", "%T %r")


def orphan(recorder: Recorder) -> None:
    """A client that is killed while it follows, and a folder that is deleted by hand."""
    name = "left"
    words = ["run", f"st/{FILE}", "--on", "two", "--runner", "torchrun", "--processes", "2", "--name", name, "-y"]
    recorder.note("a client that is killed while it follows: the run goes on without it")
    recorder.lines.append(f"$ tonnage {' '.join(words)} &")
    client = subprocess.Popen(
        [sys.executable, "-m", "tonnage", *words], cwd=recorder.folder, env=recorder.env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    folder = recorder.home / "runs" / name
    wait(lambda: (folder / "heartbeat.json").exists(), "the run's start")
    recorder.kill("the client", client.pid)
    client.wait()
    recorder.run("tonnage ps")
    recorder.note("its folder is deleted by hand: no run waits for the job now")
    recorder.run(f"rm -r {recorder.home}/runs/{name}")
    (recorder.home / "places.toml").write_text(HERE)
    recorder.run("tonnage places orphans")
    recorder.run("tonnage places orphans --end")
    wait(
        lambda: not subprocess.run(["squeue", "-h", "-n", name], env=recorder.env, capture_output=True).stdout,
        "its end",
    )
    recorder.run("tonnage places orphans")


def dry_runs(recorder: Recorder) -> None:
    """One file whose rows lie behind a network, at each of the other kinds."""
    (recorder.home / "places.toml").write_text(page_places())
    recorder.note("the same file at six other kinds of place, as docs/places.md writes them down: no network is used")
    recorder.run("tonnage init mlp --out table")
    file = "mlp.tonnage.yaml"
    recorder.run(
        f"sed -i 's#train: data/[a-z.]*#train: s3://my-rows/table.csv#' {file} && grep -n s3: {file}", place="table"
    )
    for place, kind in DRY.items():
        recorder.note(kind)
        words = f"--on {place} --runner torchrun --processes 8"
        recorder.run(f"tonnage run table/{file} {words} --dry-run | cut -c1-160")


def main() -> None:
    with TemporaryDirectory() as folder, slurm_cluster(Path(folder) / "slurm", grace_s=30) as cluster:
        recorder = Recorder(Path(folder))
        recorder.env |= cluster.environ | {"MLFLOW_TRACKING_URI": "none"}
        recorder.home.mkdir()
        (recorder.home / "places.toml").write_text(HERE)
        record(recorder, cluster)
    text = "\n".join(recorder.lines).replace(str(recorder.home), "~/tonnage").replace(folder, "~")
    text = text.replace(sys.prefix, "~/venv").replace(str(Path(__file__).parents[1]), "~/code")
    TARGET.write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
