"""SkyPilot as a place: the task that is sent, held to SkyPilot's own loader, and a command that fails."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.skypilot.jobs import PHASES, SkyPilotJobs, task_text, view_of
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.skypilot import FakeSkyPilot

pytestmark = pytest.mark.heavy
PYTHON = os.environ.get("TONNAGE_SKYPILOT_PYTHON")  # of an environment that has SkyPilot 0.14
DIGEST = f"sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "skypilot", "bucket": "gs://runs/tonnage", "image": f"registry.example/tonnage@{DIGEST}", "cores": 2,
    "memory_gib": 8, "candidates": ["aws/us-east-1/p5.48xlarge", "gcp/us-central1/a3-highgpu-8g"],
    "time_limit_minutes": 240,
}  # fmt: skip
TAG = "tonnage:0a1b2c3d:0123456789ab:first"
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first", token="0123456789ab", home="0a1b2c3d", owner="me", tag=TAG,
    command=("sleep", "60"), env={"A": "it's $HOME"}, tags={"tonnage": TAG, "tonnage-run": "first"}, max_cost_usd=None,
)  # fmt: skip
LOADER = """
import sys
import sky
task = sky.Task.from_yaml(sys.argv[1])
for one in task.resources:
    print(one.cloud, one.region, one.instance_type, one.use_spot, one.extract_docker_image())
    print(one.job_recovery)
print(sorted(task.envs.items()))
print(task.to_yaml_config()["run"])
"""


def cloud(**changed: Any) -> SkyPilotJobs:
    return SkyPilotJobs(name="sky", place=SkyPilotPlace(**(TERMS | changed)), answers_s=changed.pop("answers_s", 60))


def test_the_machines_are_tried_in_their_order_and_the_work_has_an_end() -> None:
    """Spot or not, one node; the exit code of a saved run starts it again, a failure never does."""
    [request] = cloud(spot=True, grace_s=20).requests(WORK)
    resources = request.body["resources"]
    assert resources["ordered"] == [
        {"infra": "aws/us-east-1", "instance_type": "p5.48xlarge", "use_spot": True},
        {"infra": "gcp/us-central1", "instance_type": "a3-highgpu-8g", "use_spot": True},
    ]
    assert resources["image_id"] == f"docker:registry.example/tonnage@{DIGEST}"
    assert resources["job_recovery"]["recover_on_exit_codes"] == [75]
    assert request.body["run"] == "exec timeout --signal=TERM --kill-after=60 14400 sleep 60\n"
    assert (request.body["envs"]["A"], request.body["envs"]["TONNAGE_TAG"]) == ("it's $HOME", TAG)


HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch"
)


def lay_catalogs(home: Path, candidates: list[str]) -> None:
    """The lists of machines that SkyPilot would fetch, with those that are asked for."""
    folder = home / ".sky" / "catalogs" / "v8"
    rows: dict[str, list[str]] = {}
    for one in candidates:
        provider, region, kind = one.split("/")
        row = f"{kind},H100,8,192,2048,,10.0,5.0,{region},{region}a,x86_64"
        rows.setdefault({"digitalocean": "do"}.get(provider, provider), []).append(row)
    for provider, lines in rows.items():
        (folder / provider).mkdir(parents=True)
        (folder / provider / "vms.csv").write_text("\n".join([HEADER, *lines, ""]))
    (folder / "common").mkdir()
    (folder / "common" / "accelerators.csv").write_text("AcceleratorName,Clouds\nH100,AWS\n")


FORMS: list[dict[str, Any]] = [
    {}, {"spot": True, "grace_s": 20, "strategy": "FAILOVER"}, {"candidates": ["digitalocean/tor1/gpu-h100x8-640gb"]},
    {"candidates": ["lambda/us-east-1/gpu_8x_h100_sxm5"], "secret": "aws:keys", "disk_gib": 500},
    {"patch": {"Task": {"resources": {"disk_tier": "high"}}}},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="TONNAGE_SKYPILOT_PYTHON: an interpreter with skypilot 0.14")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_skypilots_own_loader_takes(form: dict[str, Any], tmp_path: Path) -> None:
    """In an environment of its own; what it read is what was meant."""
    [request] = cloud(**form).requests(WORK)
    file = tmp_path / "task.yaml"
    file.write_text(task_text(request.body))
    lay_catalogs(tmp_path, form.get("candidates", TERMS["candidates"]))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run([str(PYTHON), "-c", LOADER, str(file)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0].split()
    assert first[1:4] == [*form.get("candidates", TERMS["candidates"])[0].split("/")[1:], str(form.get("spot", False))]
    assert first[4] == f"registry.example/tonnage@{DIGEST}"
    assert "'recover_on_exit_codes': [75]" in done.stdout
    assert "exec timeout --signal=TERM" in done.stdout
    file.write_text(task_text(request.body | {"resourcez": {}}))
    wrong = subprocess.run([str(PYTHON), "-c", LOADER, str(file)], env=env, capture_output=True, text=True, check=False)
    assert "resourcez" in wrong.stderr


REFUSED = [
    ({"candidates": []}, "candidates"), ({"candidates": ["aws/p5.48xlarge"]}, "candidates"),
    ({"secret": "keys"}, "secret"),
    ({"spot": True, "grace_s": 60}, "30 s"), ({"bucket": "file:///runs"}, "s3:// or gs://"),
    ({"image": "a:b"}, "digest"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_states_are_those_of_all_places() -> None:
    """Those of SkyPilot 0.14.1, `sky/jobs/state.py`; the words of a failure stay."""
    document = {"job_id": 7, "status": "FAILED_NO_RESOURCE", "failure_reason": "no resource\n in aws"}
    assert (view_of(document).phase, view_of(document).reason) == (Phase.ENDED, "no resource in aws")
    assert PHASES["RECOVERING"] is Phase.QUEUED  # preempted, once the run has begun
    assert view_of({"job_id": 7, "status": "ManagedJobStatus.RUNNING"}).phase is Phase.RUNNING


def test_sent_twice_it_is_one_job_and_it_is_found_and_ended(skypilot: FakeSkyPilot) -> None:
    skypilot.start_s = 600
    one = cloud(command=skypilot.command)
    first = one.send(one.requests(WORK), WORK.token)
    assert one.send(one.requests(WORK), WORK.token) == first == one.find(WORK.token)
    assert [(found.job_id, found.tag) for found in one.tagged("0a1b2c3d")] == [(first, TAG)]
    assert one.tagged("ffffffff") == []
    one.end(first, WORK.token)
    while one.view(first).phase is Phase.ENDING:
        time.sleep(0.05)
    one.end(first, WORK.token)
    assert one.view(first).phase is Phase.CANCELLED
    assert one.view("99").phase is Phase.GONE


def test_a_job_whose_work_fails_says_why(skypilot: FakeSkyPilot) -> None:
    one = cloud(command=skypilot.command)
    work = replace(WORK, command=("sh", "-c", "echo no such dataset >&2; exit 3"))
    job = one.send(one.requests(work), work.token)
    while (view := one.view(job)).phase is not Phase.ENDED:
        time.sleep(0.05)
    assert (view.word, view.reason) == ("FAILED", "the job exited with code 3: no such dataset")


def test_a_command_that_is_not_there_fails_or_says_nothing(skypilot: FakeSkyPilot, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no command sky-none") as raised:
        cloud(command="sky-none").find("a")
    assert "skypilot" in (raised.value.hint or "")
    with pytest.raises(TonnageError, match="cannot reach the API server"):
        cloud(command=skypilot.elsewhere(1)).find("a")
    for name, text, said in (("garbled", "echo hello", "printed no JSON"), ("slow", "sleep 30", "does not come back")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
        place = SkyPilotPlace(**TERMS, command=str(tmp_path / name))
        with pytest.raises(TonnageError, match=said):
            SkyPilotJobs(name="sky", place=place, answers_s=0.5).find("a")


def test_check_names_what_is_missing_and_the_command_that_mends_it(skypilot: FakeSkyPilot, google: FakeGoogle) -> None:
    assert google.storage.buckets

    def refusals(**changed: Any) -> list[tuple[str, str]]:
        found = cloud(**{"command": skypilot.command} | changed)
        runs = BucketRuns(kind="skypilot", name="sky", place=found.place, cloud=found)
        told = runs.check(RunFolder(Path("/home/runs/check")))
        return [(one.message, one.hint) for one in told if one.kind == "refused"]

    assert refusals() == []
    for changed, said, mends in (
        ({"bucket": "gs://nothing/here"}, "no bucket nothing", "gcloud storage buckets create"),
        ({"candidates": ["lambda/us-east-1/gpu_8x"]}, "no access to lambda", f"{skypilot.command} check lambda"),
        ({"command": "sky-none"}, "no command sky-none", "pip install"),
    ):
        found = refusals(**changed)
        assert any(said in message and mends in hint for message, hint in found), (changed, found)
