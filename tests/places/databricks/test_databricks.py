"""Databricks as a place: what is sent, what `check` finds, and a workspace that fails."""

from __future__ import annotations

import json
import sys
import time
import tomllib
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.databricks.checks import body_faults
from tonnage.places.databricks.jobs import ENTRY_POINT, PHASES, DatabricksJobs, view_of
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.states import Phase, PlaceStatus
from tonnage.runs import RunFolder
from tonnage.supervisor import wheel_task
from tonnage.testing.databricks import FakeWorkspace
from tonnage.testing.http_service import HTTPAnswer, times
from tonnage.testing.places import PlaceTrial

NEEDS_SDK = pytest.mark.skipif(find_spec("databricks") is None, reason="the extra `databricks`")
pytestmark = [pytest.mark.heavy, NEEDS_SDK]  # the SDK itself is loaded by the first test: it takes seconds
ROOT = Path(__file__).parents[3]
WHEEL = "/Volumes/main/ml/runs/tonnage-1.0-py3-none-any.whl"
IMAGE = f"registry.example/tonnage@sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "databricks", "cloud": "aws", "region": "us-east-1", "bucket": "/Volumes/main/ml/runs/tonnage", "cores": 4,
    "memory_gib": 16, "runtime": "16.4.x-cpu-ml-scala2.12", "instance_type": "i3.xlarge", "wheels": [WHEEL],
    "time_limit_minutes": 240,
}  # fmt: skip
TAG = "tonnage:0a1b2c3d:0123456789ab:first"
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first", token="0123456789ab", home="0a1b2c3d", owner="me", tag=TAG,
    command=("python", "-m", "tonnage.supervisor.bucket", "--help"), env={"A": "1"},
    tags={"tonnage": TAG, "tonnage-run": "First run"}, max_cost_usd=None, secrets=("HF_TOKEN",),
)  # fmt: skip
PROFILE = "arn:aws:iam::123456789012:instance-profile/tonnage-run"


def cloud(**changed: Any) -> DatabricksJobs:
    patience_s = changed.pop("patience_s", 20)
    return DatabricksJobs(name="db", place=DatabricksPlace(**(TERMS | changed)), patience_s=patience_s)


FORMS: list[dict[str, Any]] = [
    {}, {"spot": True, "grace_s": 60}, {"cloud": "azure"}, {"cloud": "gcp", "zone": "us-east1-b"}, {"ebs_gib": 500},
    {"image": IMAGE, "wheels": []}, {"policy": "ABC", "run_as": "1f0c6c1e-8a53-4a51-9c3c-1f1d7cbd6a11"},
    {"bucket": "s3://runs/tonnage", "instance_profile": PROFILE}, {"packages": ["tokenizers==0.21"], "secret": "keys"},
    {"bucket": "gs://runs/tonnage", "cloud": "gcp", "service_account": "run@p.iam.gserviceaccount.com"},
    {"init_scripts": ["/Volumes/main/ml/runs/a.sh", "/Workspace/b.sh", "s3://b/c.sh", "gs://b/d.sh"]},
    {"patch": {"SubmitRun": {"health": {"rules": []}}}},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_the_sdk_knows(form: dict[str, Any]) -> None:
    """By its own models: nothing of a body is dropped by them. One node, and an end after the time limit."""
    [request] = cloud(**form).requests(WORK)
    assert body_faults(request.body) == []
    [task] = request.body["tasks"]
    cluster = task["new_cluster"]
    assert (cluster["num_workers"], cluster["spark_conf"]["spark.databricks.cluster.profile"]) == (0, "singleNode")
    assert request.body["timeout_seconds"] == task["timeout_seconds"] == 240 * 60
    assert request.body["idempotency_token"] == WORK.token
    assert cluster["spark_env_vars"]["TONNAGE_TAG"] == TAG
    assert ("docker_image" in cluster) == ("image" in form)


def test_the_walk_over_the_sdks_models_finds_names_and_values_that_they_do_not_know() -> None:
    [request] = cloud(patch={"SubmitRun": {"idempotency": "x"}}).requests(WORK)
    request.body["tasks"][0]["new_cluster"]["aws_attributes"]["availability"] = "CHEAP"
    request.body["tasks"][0]["new_clusters"] = {}
    request.body["tasks"][0]["timeout"] = 1
    found = body_faults(request.body)
    assert found == [
        "idempotency", "tasks[0].new_cluster.aws_attributes.availability", "tasks[0].timeout"
    ]  # fmt: skip


def test_spot_falls_back_and_secrets_are_references() -> None:
    """The one node is the driver: none of it is put on demand first. No secret's value is known here."""
    [request] = cloud(spot=True, secret="keys").requests(WORK)
    cluster = request.body["tasks"][0]["new_cluster"]
    assert cluster["aws_attributes"] == {
        "availability": "SPOT_WITH_FALLBACK", "first_on_demand": 0, "zone_id": "auto"
    }  # fmt: skip
    assert cluster["spark_env_vars"]["HF_TOKEN"] == "{{secrets/keys/HF_TOKEN}}"
    [google] = cloud(cloud="gcp").requests(replace(WORK, secrets=()))
    tags = google.body["tasks"][0]["new_cluster"]["custom_tags"]
    assert tags["tonnage"] == "tonnage-0a1b2c3d-0123456789ab-first"  # labels of Google Cloud have no colon


REFUSED = [
    ({"wheels": []}, "`wheels`"), ({"image": IMAGE}, "`image` or `wheels`"), ({"bucket": "file:///runs"}, "a volume"),
    ({"bucket": "/Volumes/main/ml/runs"}, "a folder in a volume"), ({"bucket": "s3://runs/a"}, "instance_profile"),
    ({"bucket": "gs://runs/a", "cloud": "gcp"}, "service_account"), ({"cloud": "azure", "spot": True}, "on demand"),
    ({"cloud": "azure", "instance_profile": PROFILE}, "Amazon"), ({"cloud": "azure", "ebs_gib": 200}, "Amazon"),
    ({"spot": True, "grace_s": 110}, "120 s"), ({"cloud": "oracle"}, "cloud"), ({"policies": "a"}, "policies"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_an_init_script_from_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="not an init script") as raised:
        cloud(init_scripts=["setup.sh"]).requests(WORK)
    assert "/Volumes/" in (raised.value.hint or "")


def test_states_are_those_of_all_places() -> None:
    """Each of the API's states has one; who cancelled a run is kept; the time limit's end can be resumed."""
    from databricks.sdk.service import jobs

    assert {one.value for one in jobs.RunLifecycleStateV2State} == set(PHASES)
    document: dict[str, Any] = {"run_id": 7, "status": {"state": "TERMINATED", "termination_details": {}}}

    def ended(code: str) -> Phase:
        assert code in {one.value for one in jobs.TerminationCodeCode}
        document["status"]["termination_details"] = {"code": code, "message": "in words"}
        assert view_of(document).reason == "in words"
        return view_of(document).phase

    assert [ended(code) for code in ("USER_CANCELED", "CANCELED", "CLOUD_FAILURE", "SUCCESS")] == [
        Phase.CANCELLED, Phase.ENDED, Phase.ENDED, Phase.ENDED
    ]  # fmt: skip


def test_the_package_has_the_entry_point_that_a_task_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databricks looks it up in the wheel's metadata. A run that failed is a task that failed."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, function = next(group[ENTRY_POINT] for group in groups.values() if ENTRY_POINT in group).partition(":")
    assert getattr(import_module(module), function) is wheel_task.main
    monkeypatch.setattr(wheel_task, "PROGRAM", "platform")
    monkeypatch.setattr(sys, "argv", ["task"])
    wheel_task.main()
    monkeypatch.setattr(wheel_task, "PROGRAM", "tonnage.no_such_module")
    with pytest.raises(RuntimeError, match="exit code 1"):
        wheel_task.main()


def test_sent_twice_it_is_one_run(workspace: FakeWorkspace) -> None:
    """Also where the first client died before it knew; it is found by its token, in whichever page."""
    workspace.start_s, workspace.page = 600, 2
    requests = cloud().requests(replace(WORK, secrets=()))
    first = cloud().send(requests, WORK.token)
    others = [replace(WORK, token=f"0123456789c{one}", name=f"t-{one}-0123456789c{one}") for one in range(5)]
    for one in others:
        cloud().send(cloud().requests(one), one.token)
    assert cloud().send(requests, WORK.token) == first == cloud().find(WORK.token)
    assert cloud().find("ffffffffffff") is None
    assert len(workspace.runs) == 6
    assert [one.tag for one in cloud().tagged("0a1b2c3d")] == [TAG] * 6
    assert cloud().tagged("ffffffff") == []


@pytest.mark.parametrize("refusal", [
    HTTPAnswer(status=429, document={"error_code": "RESOURCE_EXHAUSTED", "message": "slow"},
             headers={"Retry-After": "0"}),
    HTTPAnswer(status=503, document={"error_code": "TEMPORARILY_UNAVAILABLE", "message": "soon"},
             headers={"Retry-After": "0"}),
])  # fmt: skip
def test_throttled_failing_and_lost_answers_make_no_second_run(workspace: FakeWorkspace, refusal: HTTPAnswer) -> None:
    workspace.start_s = 600
    workspace.before.append(times(2, refusal, "POST", "/submit"))
    workspace.after.append(times(2, refusal, "POST", "/submit"))
    requests = cloud().requests(replace(WORK, secrets=()))
    assert int(cloud().send(requests, WORK.token)) in workspace.runs
    assert len(workspace.runs) == 1


def test_what_the_workspace_refuses_is_said_with_the_next_step(workspace: FakeWorkspace) -> None:
    requests = cloud(instance_type="p9.48xlarge").requests(WORK)
    with pytest.raises(TonnageError, match=r"p9\.48xlarge is not supported") as raised:
        cloud().send(requests, WORK.token)
    assert raised.value.hint == "`tonnage places check db`"
    assert workspace.runs == {}


def test_one_that_ended_can_be_ended_again_and_one_that_vanished_is_gone(workspace: FakeWorkspace) -> None:
    workspace.start_s = 600
    one = cloud()
    made = one.send(one.requests(replace(WORK, secrets=())), WORK.token)
    assert one.view(made).phase is Phase.PROVISIONING
    one.end(made, WORK.token)
    while one.view(made).phase is Phase.ENDING:
        time.sleep(0.02)
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.CANCELLED
    workspace.forget(int(made))
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.GONE


def test_a_run_whose_work_never_began_says_why(workspace: FakeWorkspace) -> None:
    """The last line of its task is the reason."""
    one = cloud()
    work = replace(WORK, command=("python", "-m", "x", "--store", "file:///nowhere", "--bad"), secrets=())
    made = one.send(one.requests(work), WORK.token)
    while (view := one.view(made)).phase is not Phase.ENDED:
        time.sleep(0.05)
    assert view.word == "RUN_EXECUTION_ERROR"
    assert "exit code 2" in view.reason
    assert workspace.runs[int(made)].state == "TERMINATED"


def refusals(**changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="databricks", name="db", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == "refused"]


def test_check_names_what_is_missing_and_the_command_that_mends_it(workspace: FakeWorkspace) -> None:
    """Each alone."""
    assert refusals() == []
    gpus = {"gpus": 8, "gpu": "a100", "cores": 96, "memory_gib": 1000, "instance_type": "p4d.24xlarge"}
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "/Volumes/main/ml/none/runs"}, "no volume /Volumes/main/ml/none", "databricks volumes create main"),
        ({"runtime": "9.9.x"}, "no runtime 9.9.x", 'runtime = "16.4.x-cpu-ml-scala2.12"'),
        ({"gpus": 8, "gpu": "a100"}, "has no driver of GPUs", "-gpu-ml-"),
        ({"instance_type": "p9.48xlarge"}, "no node type p9.48xlarge", "databricks clusters list-node-types"),
        ({**gpus, "runtime": "16.4.x-gpu-ml-scala2.12"}, "is not enabled in the cloud's subscription", "instance_type"),
        ({"cores": 8}, "has 4 cores, 30.5 GiB and 0 GPUs", "cores = 4"),
        ({"instance_type": "c5.xlarge", "memory_gib": 8}, "no disk of its own", "ebs_gib = 200"),
        ({"policy": "ABC"}, "no cluster policy ABC", "databricks cluster-policies list"),
        ({"wheels": ["/Volumes/main/ml/runs/a.whl"]}, "no /Volumes/main/ml/runs/a.whl", "databricks fs cp a.whl"),
        ({"init_scripts": ["/Workspace/b.sh"]}, "no /Workspace/b.sh", "databricks workspace import"),
        ({"instance_profile": PROFILE}, "does not know arn:aws", f"databricks instance-profiles add {PROFILE}"),
        ({"secret": "keys"}, "no secret scope keys", "databricks secrets create-scope keys"),
        ({"patch": {"SubmitRun": {"qeue": {}}}}, "no such part of a run: qeue", "places.db.patch.SubmitRun"),
    ]  # fmt: skip
    for changed, message, hint in table:
        found = refusals(**changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    workspace.policies.add("ABC")
    workspace.profiles.add(PROFILE)
    workspace.secrets["keys"] = {}
    workspace.scripts.add("/b.sh")
    assert refusals(policy="ABC", instance_profile=PROFILE, secret="keys", init_scripts=["/Workspace/b.sh"]) == []


def test_check_without_a_sign_in(workspace: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired, or none at all: the command that signs in."""
    workspace.token = "another"
    found = refusals(profile=None)
    assert any(
        "sign-in is refused or has expired" in said and "databricks auth login" in mends for said, mends in found
    )
    monkeypatch.delenv("DATABRICKS_HOST")
    monkeypatch.delenv("DATABRICKS_TOKEN")
    found = refusals()
    assert any("DATABRICKS_HOST" in mends for _, mends in found), found


def steps(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


@pytest.mark.slow
def test_a_lost_machine_and_the_run_goes_on(workspace: FakeWorkspace, tmp_path: Path) -> None:
    """The run is lost with Databricks' reason; the next submission goes on, with every loss in place."""
    found = cloud(
        python=sys.executable, mount=str(tmp_path / "there"), exchange_s=0.3, grace_s=8, cores=1, memory_gib=1
    )
    runs = BucketRuns(kind="databricks", name="db", place=found.place, cloud=found)
    trial = PlaceTrial(executor=runs, home=tmp_path / "here")
    folder = trial.write("taken")
    made = trial.start(folder, steps=4000, step_s=0.02, checkpoint_every=10)
    trial.wait(lambda: trial.status(folder).status.ended or (folder.state().checkpoint_step or 0) > 20)
    workspace.lose(int(made))
    lost = trial.reach(folder, PlaceStatus.LOST)
    assert lost.message == "CLOUD_FAILURE: Spot instance was terminated."
    at = folder.state().step + 20
    trial.start(folder, 2, steps=at, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert steps(folder) == {step: 1 / step for step in range(1, at + 1)}
    assert folder.state().lost_steps < 30
    trial.executor.teardown(folder)
    left = [one for one in (workspace.volumes / "main/ml/runs/tonnage").rglob("*") if one.is_file()]
    assert [one.name for one in left if "objects" not in one.parts] == ["lease.json"]
