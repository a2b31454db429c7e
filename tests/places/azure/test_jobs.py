"""Azure ML as a place: what is sent, states, several nodes, orphans, what `check` finds, and an API that fails."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.record_azure_schema import JOBS, excerpt
from tests.places.works import TAG
from tests.places.works import WORK as FIRST

from tonnage.errors import InputError, TonnageError
from tonnage.places.azure.jobs import PHASES, AzureMLJobs
from tonnage.places.azure.place import AzureMLPlace
from tonnage.places.bucket.cloud import Request, Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.azure.cloud import SUBSCRIPTION, FakeAzure, azure_fault
from tonnage.testing.azure.machine_learning import CLIENT_ID
from tonnage.testing.http_service import times

pytestmark = pytest.mark.heavy
DIGEST = "0" * 64
TERMS: dict[str, Any] = {
    "kind": "azureml", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "workspace": "team",
    "compute": "gpus", "instance_type": "Standard_NC24ads_A100_v4", "identity": CLIENT_ID, "cores": 24,
    "memory_gib": 220, "gpus": 1, "gpu_memory_gib": 80, "bucket": "az://runs@account.blob.core.windows.net/tonnage",
    "time_limit_minutes": 240, "image": f"team.azurecr.io/tonnage@sha256:{DIGEST}", "spot": True, "grace_s": 20,
}  # fmt: skip
WORK = replace(FIRST, command=("sh", "-c", "sleep 60"))
SERVERLESS = {"compute": None}


def cloud(**changed: Any) -> AzureMLJobs:
    attempts = changed.pop("attempts", 3)
    terms = {key: value for key, value in (TERMS | changed).items() if value is not None}
    return AzureMLJobs(name="ml", place=AzureMLPlace(**terms), attempts=attempts, sleep=lambda _: None)


def other(number: int) -> Work:
    token = f"0123456789a{number}"
    return replace(WORK, name=f"t-{number}", token=token, tags={**WORK.tags, "tonnage-token": token})


def job_in(requests: tuple[Request, ...]) -> dict[str, Any]:
    found: dict[str, Any] = requests[-1].body["properties"]
    return found


@pytest.mark.parametrize("form", [
    {}, {"spot": False, "grace_s": 60}, {"nodes": 4}, SERVERLESS, {**SERVERLESS, "spot": False, "nodes": 2},
    {"shm_gib": 64, "experiment": "bert", "secret": "azure:vault/keys", "labels": {"Team": "ML"}},
    {"patch": {"Jobs_CreateOrUpdate": {"properties": {"resources": {"dockerArgs": "--ulimit memlock=-1"}}}}},
])  # fmt: skip
def test_every_form_is_one_that_the_models_have(form: dict[str, Any]) -> None:
    """The image's digest is the environment's version; Azure ML ends the job in time; the same bytes twice."""
    requests = cloud(**form).requests(WORK)
    assert cloud(**form).requests(WORK) == requests
    environment, job = requests
    assert environment.body == {"properties": {"image": TERMS["image"], "osType": "Linux"}}
    asked = job.body["properties"]
    assert environment.service.partition("?")[0].endswith(asked["environmentId"])
    assert asked["environmentId"].endswith(f"/environments/tonnage/versions/{DIGEST}")
    assert (asked["limits"]["timeout"], asked["command"]) == ("PT240M", "sh -c 'sleep 60'")
    assert asked["environmentVariables"] == {"A": "it's $HOME", "AZURE_CLIENT_ID": CLIENT_ID}
    assert asked["resources"]["shmSize"] == f"{form.get('shm_gib', 55)}g"
    nodes = form.get("nodes", 1)
    assert asked["resources"]["instanceCount"] == nodes
    assert asked.get("distribution") == (
        {"distributionType": "PyTorch", "processCountPerInstance": 1} if nodes > 1 else None
    )
    if "compute" in form:
        assert "computeId" not in asked
        assert asked["queueSettings"] == {"jobTier": "Spot" if form.get("spot", True) else "Standard"}
        assert asked["resources"]["instanceType"] == TERMS["instance_type"]
    else:
        assert asked["computeId"].endswith("/workspaces/team/computes/gpus")
        assert "queueSettings" not in asked


@pytest.mark.parametrize(("patch", "said"), [
    ({"limits": {"timeout": 3}}, "a text, not"), ({"computId": "gpus"}, "no such member"),
    ({"queueSettings": {"jobTier": "Cheap"}}, "'Cheap' is none of Null"),
    ({"distribution": {"distributionType": "Mpi"}}, "'Mpi' is none of PyTorch"),
    ({"resources": {"instanceCount": "2"}}, "a number, not"),
])  # fmt: skip
def test_what_azure_ml_would_refuse_is_refused_before_anything_is_sent(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cloud(patch={"Jobs_CreateOrUpdate": {"properties": patch}}).requests(WORK)


@pytest.mark.parametrize(("changed", "said"), [
    ({"identity": "tonnage-run"}, "identity"), ({"workspace": "a b"}, "workspace"), ({"grace_s": 60}, "30 s at most"),
    ({"time_limit_minutes": 20_000}, "7 days, of low priority: 10080"), ({"bucket": "s3://runs/t"}, "Blob Storage"),
    ({"spot": False, "time_limit_minutes": 40_000}, "21 days: 30240"), ({"image": "a/t:latest"}, "no digest"),
    ({"secret": "keys"}, "VAULT/NAME"), ({"labels": {"a/b": "c"}}, "name of a tag"),
])  # fmt: skip
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_low_priority_has_no_price_of_the_catalog() -> None:
    """It is sold at a price of its own; on demand a node costs what its machine does."""
    assert cloud().place.possible_machines == ()
    [machine] = cloud(spot=False, grace_s=60).place.possible_machines
    assert (machine.platform, machine.provider, machine.purchase) == ("vm", "azure", "on_demand")


def test_the_recorded_members_are_those_of_the_installed_models() -> None:
    pytest.importorskip("azure.ai.ml")
    assert json.loads(JOBS.file.read_text()) == excerpt(JOBS)


@pytest.mark.filterwarnings("ignore")  # of azure-ai-ml's own libraries
@pytest.mark.parametrize("form", [{}, {"nodes": 4}, {**SERVERLESS, "nodes": 2}, {"spot": False, "grace_s": 60}])
def test_azure_ml_s_own_loader_reads_the_job_and_would_send_it_so(form: dict[str, Any], tmp_path: Path) -> None:
    """The same job as a file of `az ml job create`: what `load_job` makes of it to be sent is what we send."""
    library = pytest.importorskip("azure.ai.ml", reason="pip install azure-ai-ml")
    asked = cloud(**form).requests(WORK)[-1].body["properties"]
    given = asked["resources"]
    resources = {"instance_count": given["instanceCount"], "shm_size": given["shmSize"]}
    written: dict[str, Any] = {
        "type": "command", "name": WORK.name, "display_name": asked["displayName"], "command": asked["command"],
        "experiment_name": asked["experimentName"], "environment": f"azureml:{asked['environmentId']}",
        "environment_variables": asked["environmentVariables"], "tags": asked["tags"],
        "properties": asked["properties"], "limits": {"timeout": 240 * 60}, "resources": resources,
        "identity": {"type": "managed", "client_id": asked["identity"]["clientId"]},
    }  # fmt: skip
    if "computeId" in asked:
        written["compute"] = f"azureml:{asked['computeId']}"
    else:
        written["queue_settings"] = {"job_tier": asked["queueSettings"]["jobTier"].lower()}
        resources["instance_type"] = given["instanceType"]
    if "distribution" in asked:
        written["distribution"] = {"type": "pytorch", "process_count_per_instance": 1}
    file = tmp_path / "job.yml"
    file.write_text(json.dumps(written))
    sent = library.load_job(str(file))._to_job()._to_rest_object().as_dict()["properties"]
    assert sent["limits"].pop("timeout") == "PT4H"  # as ours, PT240M
    sent["resources"].pop("properties", None)
    for name in ("codeId", "inputs", "outputs", "services", "isArchived", "description", "componentId"):
        assert not sent.pop(name, None), name
    assert sent == {**asked, "limits": {"jobLimitsType": "Command"}}


def made(one: AzureMLJobs, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


def test_sent_twice_it_is_one_job(azure: FakeAzure) -> None:
    """After throttling, a failure and a lost answer too; another's job of the name is no job of ours."""
    azure.ml.start_s = 600
    for number, status in enumerate((429, 503)):
        azure.before.append(times(1, azure_fault(status, "Busy", "later"), "PUT", "/jobs/"))
        azure.after.append(times(1, azure_fault(status, "Busy", "lost"), "PUT", "/jobs/"))
        work = other(number)
        assert made(cloud(), work) == made(cloud(), work) == cloud().find(work.token) == work.name
    assert len(azure.ml.jobs) == 2
    assert len(azure.ml.environments) == 1
    assert cloud().find("ffffffffffff") is None
    with pytest.raises(TonnageError, match="is there already and is not this run's") as raised:
        made(cloud(), replace(other(1), token="another", command=("true",)))
    assert "--name" in (raised.value.hint or "")
    azure.before.append(times(1, azure_fault(400, "UserError", "Compute quota"), "PUT", "/jobs/"))
    with pytest.raises(TonnageError, match="Compute quota"):
        made(cloud(), other(7))


def test_orphans_are_jobs_that_live_and_bear_the_home_s_mark(azure: FakeAzure) -> None:
    azure.ml.start_s, azure.ml.page = 600, 1
    one = cloud()
    jobs = [made(one, other(number)) for number in range(3)]
    assert [(found.job_id, found.tag) for found in one.tagged("0a1b2c3d")] == [(job, TAG) for job in jobs]
    assert one.tagged("ffffffff") == []
    one.end(jobs[0], other(0).token)
    while one.view(jobs[0]).phase is not Phase.CANCELLED:
        time.sleep(0.02)
    one.end(jobs[0], other(0).token)  # nothing happens
    assert [found.job_id for found in one.tagged("0a1b2c3d")] == jobs[1:]
    azure.ml.vanish(jobs[1])
    assert one.view(jobs[1]).phase is Phase.GONE
    one.end(jobs[1], other(1).token)


def test_a_job_that_fails_says_where_why_is_told_and_one_at_its_limit_is_ended(azure: FakeAzure) -> None:
    one = cloud()
    job = made(one, replace(WORK, command=("sh", "-c", "exit 3")))
    while (view := one.view(job)).phase is not Phase.ENDED:
        time.sleep(0.02)
    assert (view.word, view.reason) == ("Failed", f"see https://ml.azure.com/runs/{job}")
    azure.ml.start_s = 0.0
    late = made(one, other(1))
    while one.view(late).phase is not Phase.RUNNING:
        time.sleep(0.02)
    azure.ml.jobs[late].since -= 240 * 60
    while one.view(late).phase is not Phase.CANCELLED:
        time.sleep(0.02)


def test_every_state_has_a_phase() -> None:
    """All that the API's models name but `Unknown`, which says nothing."""
    assert set(PHASES.values()) == set(Phase) - {Phase.GONE}
    models = pytest.importorskip("azure.ai.ml._restclient.arm_ml_service.models", reason="pip install azure-ai-ml")
    assert set(PHASES) == {one.value for one in models.JobStatus} - {"Unknown"}


def findings(kind: str = "refused", **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="azureml", name="ml", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == kind]


def test_check_names_what_is_missing_and_the_command_that_mends_it(azure: FakeAzure) -> None:
    """Each alone."""
    assert findings() == []
    assert findings(**SERVERLESS) == []
    cpu = {"compute": None, "instance_type": "Standard_DS3_v2", "cores": 4, "memory_gib": 14, "gpus": 0}
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "az://nothing@account.blob.core.windows.net/a"}, "no container nothing",
         "az storage container create"),
        ({"subscription": SUBSCRIPTION.replace("1", "9")}, "no subscription 9", "az account list"),
        ({"resource_group": "none"}, "no resource group none", "az group create --name none"),
        ({"workspace": "none"}, "no workspace none", "az ml workspace create --name none --resource-group ml"),
        ({"region": "westus"}, "the workspace team is in eastus", 'region = "eastus"'),
        ({"compute": "none"}, "no compute none",
         "az ml compute create --name none --type AmlCompute --size Standard_NC24ads_A100_v4 --max-instances 1 --tier "
         "low_priority"),
        ({"compute": "box"}, "is ComputeInstance, no cluster", "az ml compute list"),
        ({"instance_type": "Standard_DS3_v2", "cores": 4, "memory_gib": 14, "gpus": 0},
         "the nodes of gpus are Standard_NC24ads_A100_v4", 'places.ml.instance_type = "Standard_NC24ads_A100_v4"'),
        ({"spot": False, "grace_s": 60}, "the nodes of gpus are LowPriority", "places.ml.spot = true"),
        ({"nodes": 5}, "gpus has 4 nodes at most, a run needs 5", "az ml compute update --max-instances 5"),
        ({"nodes": 5}, "Low Priority Cores of eastus is 96 vCPUs: 120 are needed", "portal.azure.com"),
        ({"identity": CLIENT_ID.replace("9", "1")}, "gpus has no identity 1", "--user-assigned-identities ID"),
        ({"instance_type": "Standard_Z1"}, "Azure ML has no Standard_Z1 in eastus", "az ml compute list-sizes"),
        ({"cores": 64}, "has 24 cores, 220 GiB and 1 GPUs", "places.ml.cores = 24"),
        ({**cpu}, "Standard_DS3_v2 is not sold with low priority", "places.ml.spot = false"),
        ({"secret": "azure:none/hf"}, "no vault none", "az keyvault create --name none"),
    ]  # fmt: skip
    for changed, message, hint in table:
        found = findings(**changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    assert findings(secret="azure:keys/hf") == []
    azure.rights.remove("Microsoft.MachineLearningServices/workspaces/jobs/write")
    [(said, mends)] = findings()
    assert "workspaces/jobs/write" in said
    assert "az role assignment create" in mends


def test_check_says_what_it_doubts_and_what_it_could_not_ask(azure: FakeAzure) -> None:
    azure.ml.cluster["scaleSettings"]["minNodeCount"] = 2
    assert any("keeps 2 nodes, which are billed" in said for said, _ in findings("doubtful"))
    azure.ml.quotas["Low Priority Cores"] = (96, 90)
    assert any("90 of it used: 24 are needed" in said for said, _ in findings("doubtful"))
    del azure.ml.quotas["Low Priority Cores"]
    assert any("lists no quota of low priority" in said for said, _ in findings("unchecked"))
    azure.before.append(times(99, azure_fault(500, "Internal", "no"), "GET", "/vmSizes"))
    assert any("the size Standard_NC24ads_A100_v4" in said for said, _ in findings("unchecked"))
    azure.before.append(times(99, azure_fault(401, "ExpiredAuthenticationToken", "expired"), "GET", "/subscriptions"))
    assert any("refused or has expired" in said and "az login" in mends for said, mends in findings())


def test_each_node_starts_the_command_and_knows_its_number(azure: FakeAzure, tmp_path: Path) -> None:
    """As Azure ML's launcher says it to members of a run."""
    told = "from tonnage.supervisor.meeting import membership_from_cloud as t; import os; print(t(os.environ)[0])"
    one = cloud(nodes=3)
    job = made(one, replace(WORK, command=(sys.executable, "-c", told)))
    while one.view(job).phase is not Phase.ENDED:
        time.sleep(0.02)
    logs = [(tmp_path / "azure" / f"{job}.{rank}.log").read_text() for rank in range(3)]
    assert [line.strip() for line in logs] == ["0", "1", "2"]
    assert azure.ml.jobs[job].status == "Completed"
