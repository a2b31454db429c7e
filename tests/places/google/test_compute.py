"""Compute Engine as a place: what is sent, what the machine does with it, what `check` finds, and APIs that fail."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.record_google_schema import FILE, document, excerpt
from tests.places.works import TAG, WORK

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket import gcs
from tonnage.places.bucket.boot import docker_words
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.bucket.gcs import GCSObjects
from tonnage.places.google import machine
from tonnage.places.google.compute import PHASES, Compute, request_id
from tonnage.places.google.machine import end_script, instance, login, mounts
from tonnage.places.google.place import GCEPlace
from tonnage.places.google.schema import check_instance
from tonnage.places.ssh.shipping import inputs_of, spec_there
from tonnage.places.states import Phase, PlaceStatus
from tonnage.runs import RunFolder
from tonnage.runs.spec import DataSource, DataSpec, RunSpec
from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle
from tonnage.testing.google.storage import google_fault
from tonnage.testing.http_service import Asked, HTTPAnswer, times
from tonnage.testing.places import PlaceTrial

pytestmark = pytest.mark.heavy
SECRET = "gcp:projects/my-project/secrets/keys"
DIGEST = f"sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "gce", "project": "my-project", "region": "us-central1", "zones": ["us-central1-a", "us-central1-b"],
    "cores": 2, "memory_gib": 8, "bucket": "gs://runs/tonnage", "instance_type": "n2-standard-2",
    "boot_image": "projects/ml/global/images/family/gpu", "time_limit_minutes": 240, "service_account": ACCOUNT,
    "image": f"us-central1-docker.pkg.dev/my-project/runs/tonnage@{DIGEST}",
}  # fmt: skip
GPUS = {"gpus": 8, "gpu": "h100", "gpu_memory_gib": 80, "instance_type": "a3-highgpu-8g", "cores": 208}


def cloud(**changed: Any) -> Compute:
    attempts = changed.pop("attempts", 3)
    return Compute(name="vm", place=GCEPlace(**(TERMS | changed)), attempts=attempts, sleep=lambda _: None)


@pytest.fixture(autouse=True)
def nobody_signs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretended machine has no metadata service to ask for a token of the registry."""
    monkeypatch.setattr(machine, "login", lambda _: ())


FORMS: list[dict[str, Any]] = [
    {}, {"spot": True, "grace_s": 20}, GPUS, {**GPUS, "gpu_subnets": ["g1", "g2", "g3", "g4"]},
    {"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4", "gpus": 2}, {"reservation": "mine"},
    {"instance_type": "a4-highgpu-8g", "gpus": 8}, {"kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k"},
    {"data_disks": ["weights", "rows"]},
    {"public_address": True, "secret": SECRET, "subnet": "projects/shared/regions/us-central1/subnetworks/ml"},
    {"patch": {"instances.insert": {"scheduling": {"provisioningModel": "FLEX_START"}}}},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_the_discovery_document_has(form: dict[str, Any]) -> None:
    """One for each zone. No machine has keys of others, outlives its time, or leaves its disk."""
    requests = cloud(**form).requests(WORK)
    assert [one.service.partition("?")[0].split("/")[-2] for one in requests] == TERMS["zones"]
    for one in requests:
        check_instance(one.body)
        scheduling = one.body["scheduling"]
        assert (scheduling["instanceTerminationAction"], scheduling["maxRunDuration"]) == (
            "DELETE",
            {"seconds": "14400"},
        )
        assert one.body["disks"][0]["autoDelete"]
        assert all(disk["mode"] == "READ_ONLY" and not disk["autoDelete"] for disk in one.body["disks"][1:])
        assert all(card["nicType"] == "GVNIC" for card in one.body["networkInterfaces"])
        assert ("accessConfigs" in one.body["networkInterfaces"][0]) == ("public_address" in form)
        assert (scheduling.get("onHostMaintenance") == "TERMINATE") == bool(form.get("gpus") or form.get("spot"))
        assert len(one.body["name"]) <= 63


def test_disks_are_those_that_a_type_takes() -> None:
    """Hyperdisk where there is no other."""
    kinds = [cloud(**one).place.disk for one in (GPUS, {"instance_type": "a4-highgpu-8g"}, {"disk_type": "pd-ssd"})]
    assert kinds == ["pd-balanced", "hyperdisk-balanced", "pd-ssd"]


REFUSED = [
    ({"zones": ["europe-west4-a"]}, "not in us-central1"), ({"zones": []}, "zones"), ({"accelerator": "x"}, "n1"),
    ({"instance_type": "n1-standard-8", "gpus": 1}, "`accelerator`"), ({"bucket": "s3://runs/a"}, "Cloud Storage"),
    ({"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4"}, "how many"),
    ({"instance_type": "a4-highgpu-8g", "disk_type": "pd-ssd"}, "hyperdisks alone"), ({"project": "My"}, "project"),
    ({**GPUS, "gpu_subnets": ["one"]}, "has 4 of these"), ({"gpu_subnets": ["one"]}, "has none of these"),
    ({"spot": True, "reservation": "mine"}, "not bought as spot"), ({"spot": True, "grace_s": 60}, "30 s"),
    ({"grace_s": 115}, "120 s"), ({"time_limit_minutes": 200_000}, "120 days"), ({"image": "a/t:latest"}, "no digest"),
    ({"boot_image": "ubuntu"}, "boot_image"), ({"service_account": "me"}, "service_account"),
    ({"data_disks": ["My disk"]}, "data_disks"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


@pytest.mark.parametrize(("patch", "said"), [
    ({"scheduling": {"preemtible": True}}, r"scheduling\.preemtible: there is no such member"),
    ({"scheduling": {"provisioningModel": "CHEAP"}}, "'CHEAP' is none of FLEX_START"),
    ({"scheduling": {"maxRunDuration": {"seconds": 60}}}, "a text, not 60"), ({"tags": {"items": "a"}}, "a list, not"),
    ({"scheduling": {"maxRunDuration": {"seconds": "an hour"}}}, "digits as a text"), ({"labels": {"a": 1}}, "a text"),
    ({"canIpForward": "yes"}, "true or false"), ({"metadata": []}, "an object, not"),
    ({"advancedMachineFeatures": {"threadsPerCore": "2"}}, "a number, not"),
])  # fmt: skip
def test_what_the_service_would_refuse_is_refused_before_anything_is_sent(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cloud(patch={"instances.insert": patch}).requests(WORK)


@pytest.mark.skipif(find_spec("googleapiclient") is None, reason="pip install google-api-python-client")
def test_the_recorded_members_are_those_of_the_installed_document() -> None:
    """And every state of an instance has one of ours."""
    told = document()
    assert json.loads(FILE.read_text()) == excerpt(told)
    assert set(told["schemas"]["Instance"]["properties"]["status"]["enum"]) == set(PHASES)


def test_the_machines_scripts_are_ones_that_bash_reads(tmp_path: Path) -> None:
    """The registry's token is on no command line; a machine whose work failed stays for its console."""
    place = cloud(gpus=8, instance_type="a3-highgpu-8g", setup=["true"]).place
    first = next(one["value"] for one in instance(place, WORK, "us-central1-a")["metadata"]["items"]
                 if one["key"] == "startup-script")  # fmt: skip
    (tmp_path / "first").write_text(first)
    subprocess.run(["bash", "-n", str(tmp_path / "first")], check=True)
    [line] = login(place.image)
    assert login("registry.example/tonnage") == ()
    for name, text in {
        "curl": 'case "$*" in *token*) echo \'{"access_token":"ya29.secret"}\';; *) echo "$@" >> called;; esac',
        "docker": "cat > signed; echo $@ >> signed",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "signed").read_text().split() == [
        "ya29.secret", "login", "-u", "oauth2accesstoken", "--password-stdin", "us-central1-docker.pkg.dev"
    ]  # fmt: skip
    end = end_script(place, WORK, "us-central1-a").replace("/bin/systemctl", "echo poweroff >> called #")
    for status, called in (("1", "poweroff"), ("0", "-X DELETE")):
        (tmp_path / "called").write_text("")
        subprocess.run(["bash", "-c", end], cwd=tmp_path, env={**env, "EXIT_STATUS": status}, check=True)
        assert called in (tmp_path / "called").read_text(), status
        assert ("poweroff" in (tmp_path / "called").read_text()) == (status == "1")


def test_data_disks_are_mounted_to_read_alone_and_their_files_stay_where_they_are(tmp_path: Path) -> None:
    """Once, before the container, which sees them; a path on one is the place's own: nothing of it is sent."""
    place = cloud(data_disks=["weights", "rows"]).place
    for name in ("mkdir", "mount", "mountpoint"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/called\n[ {name} != mountpoint ]\n')
        (tmp_path / name).chmod(0o755)
    script = "\n".join(["set -euo pipefail", *mounts(place)])
    subprocess.run(["bash", "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
    assert "mount -o ro,noload /dev/disk/by-id/google-weights /mnt/disks/weights" in (tmp_path / "called").read_text()
    assert "--volume /mnt/disks/rows:/mnt/disks/rows:ro" in " ".join(docker_words(place, WORK))
    assert [one["deviceName"] for one in instance(place, WORK, "us-central1-a")["disks"][1:]] == ["weights", "rows"]
    assert not cloud().place.holds("/mnt/disks/rows/a")
    assert not place.holds("/mnt/disks/other/a")
    here = tmp_path / "valid.csv"
    here.write_text("a,b\n1,2\n")
    rows = DataSource(location="/mnt/disks/rows/train.csv", format="csv")
    data = DataSpec(train=rows, validation=DataSource(location=str(here), format="csv"))
    spec = RunSpec(name="first", task="mlp", data=data, weights="/mnt/disks/weights/bert")
    assert list(inputs_of(spec, place.holds).values()) == [here]
    there = spec_there(spec, "/there", place.holds)
    assert (there.data.train.location, there.weights) == (rows.location, spec.weights)
    assert there.data.validation is not None
    assert there.data.validation.location.startswith("/there/")


def made(one: Compute, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


def test_sent_twice_it_is_one_instance(google: FakeGoogle) -> None:
    """Also where the first client died before it knew, and where Google forgot the request."""
    google.boot_s = 600
    first = made(cloud())
    assert made(cloud()) == first == cloud().find(WORK.token) == f"us-central1-a/{WORK.name}"
    google.by_request.clear()
    assert made(cloud()) == first
    assert len(google.instances) == 1
    assert cloud().find("ffffffffffff") is None


@pytest.mark.parametrize("refusal", [
    google_fault(429, "rateLimitExceeded", "Rate Limit Exceeded"), google_fault(503, "backendError", "try again"),
])  # fmt: skip
def test_throttled_failing_and_lost_answers_make_no_second_instance(google: FakeGoogle, refusal: HTTPAnswer) -> None:
    google.boot_s = 600
    google.before.append(times(1, refusal, "POST", "/instances"))
    google.after.append(times(1, refusal, "POST", "/instances"))
    made(cloud())
    assert len(google.instances) == 1


def test_a_zone_without_capacity_is_passed_over_and_none_is_an_error(google: FakeGoogle) -> None:
    """Each zone with Google's own reason; what is no question of capacity is asked of no second zone."""
    google.boot_s = 600
    google.full["us-central1-a"] = "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert made(cloud()) == f"us-central1-b/{WORK.name}"
    google.full["us-central1-b"] = "ZONE_RESOURCE_POOL_EXHAUSTED"
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    with pytest.raises(TonnageError, match=r"us-central1-a: ZONE_RESOURCE.*; us-central1-b: ZONE_RESOURCE") as raised:
        made(cloud(), other)
    assert "--on any" in (raised.value.hint or "")
    google.full["us-central1-a"] = "QUOTA_EXCEEDED"
    other = replace(WORK, token="ba9876543211", name="t-first-0a1b2c3d-ba9876543211")
    with pytest.raises(TonnageError, match=r"us-central1-a: QUOTA_EXCEEDED: us-central1-a has none now$") as raised:
        made(cloud(), other)
    assert raised.value.hint == "`tonnage places check vm`"


def test_a_name_that_another_has_is_refused(google: FakeGoogle) -> None:
    """An instance of this name without our token is nobody's but its owner's."""
    google.boot_s = 600
    made(cloud())
    google.instances[WORK.name].body["labels"]["tonnage-token"] = "of-another"
    google.by_request.clear()
    with pytest.raises(TonnageError, match="already exists"):
        made(cloud())


def test_one_that_ended_can_be_ended_again_and_who_ended_it_is_known(google: FakeGoogle) -> None:
    google.boot_s = 600
    one = cloud()
    job = made(one)
    assert one.view(job).phase is Phase.PROVISIONING
    one.end(job, WORK.token)
    while one.view(job).phase is not Phase.GONE:
        time.sleep(0.02)
    one.end(job, WORK.token)
    assert one.view(job).reason == ""
    google.instances.clear()
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    job = made(one, other)
    google.interrupt(other.name)
    while one.view(job).phase is not Phase.GONE:
        time.sleep(0.02)
    assert (one.view(job).word, one.view(job).reason) == ("preempted", "Spot took the machine")


def test_a_machine_whose_work_never_began_says_why_and_is_an_orphan_until_it_is_deleted(google: FakeGoogle) -> None:
    """The console's last line is the reason; a stopped machine's disk is billed, so it is listed."""
    one = cloud(setup=["echo 'mount: no such disk' >&2", "exit 32"])
    job = made(one)
    while (view := one.view(job)).phase is not Phase.ENDED:
        time.sleep(0.02)
    assert (view.word, view.reason) == ("TERMINATED", "mount: no such disk")
    [found] = one.tagged("0a1b2c3d")
    assert (found.job_id, found.tag, found.view.phase) == (job, TAG, Phase.ENDING)
    assert one.tagged("ffffffff") == []
    one.end(job, WORK.token)
    while google.instances:
        time.sleep(0.02)


def test_instances_are_found_page_by_page(google: FakeGoogle) -> None:
    google.boot_s, google.page = 600, 2
    one = cloud()
    for number in range(5):
        token = f"0123456789a{number}"
        made(one, replace(WORK, name=f"t-{number}", token=token, tags={**WORK.tags, "tonnage-token": token}))
    assert len(one.tagged("0a1b2c3d")) == 5
    assert one.find("0123456789a4") == "us-central1-a/t-4"


def test_request_ids_are_those_of_a_token_and_a_zone() -> None:
    assert request_id("a", "z") == request_id("a", "z") != request_id("b", "z")
    assert request_id("a", "y") != request_id("a", "z")


def test_an_upload_that_is_cut_goes_on_where_the_bucket_has_it(
    google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that are lost on their way, or whose answer is, are not sent from the beginning."""
    monkeypatch.setattr(gcs, "CHUNK_BYTES", 256 << 10)
    monkeypatch.setattr("time.sleep", lambda _: None)
    content = bytes(range(256)) * 4096
    (tmp_path / "weights").write_bytes(content)
    lost = google_fault(503, "backendError", "lost")
    google.before.append(times(2, lost, "PUT", "/upload/"))

    def third(asked: Asked) -> HTTPAnswer | None:
        return lost if asked.headers.get("content-range", "").startswith("bytes 524288-786431") else None

    google.after.append(times(1, lost, "PUT", "/upload/"))
    google.after.append(third)
    GCSObjects("gs://runs/x").put("weights", tmp_path / "weights")
    assert google.storage.buckets["runs"]["x/weights"].content == content
    sent = [asked.headers["content-range"] for asked in google.asked if asked.method == "PUT" and asked.content]
    assert sent.count("bytes 524288-786431/1048576") == 1


def refusals(**changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="gce", name="vm", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == "refused"]


def test_check_names_what_is_missing_and_the_command_that_mends_it(google: FakeGoogle) -> None:
    """Each alone."""
    assert refusals() == []
    n1 = {"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4", "gpus": 8}
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "gs://nothing/here"}, "no bucket nothing", "gcloud storage buckets create gs://nothing"),
        ({"project": "other-project"}, "no project other-project", "gcloud projects list"),
        ({"zones": ["us-central1-f"]}, "us-central1-f has no n2", "gcloud compute machine-types list"),
        ({"instance_type": "z9-standard-2"}, "has no z9-standard-2", "gcloud compute machine-types list"),
        ({"cores": 64}, "has 2 cores, 8 GiB and 0 GPUs", "cores = 2"),
        ({**n1, "accelerator": "nvidia-x"}, "has no nvidia-x", "gcloud compute accelerator-types list"),
        (n1, "the quota NVIDIA_T4_GPUS of us-central1 is 4", "quotas?project=my-project"),
        ({**GPUS, "spot": True, "grace_s": 20}, "PREEMPTIBLE_NVIDIA_H100_GPUS", "another region"),
        ({"boot_image": "projects/ml/global/images/none"}, "no image projects/ml", "gcloud compute images list"),
        ({"data_disks": ["none"]}, "us-central1-a has no disk none", "gcloud compute disks create none --zone"),
        ({"data_disks": ["single"]}, "not one that many read: READ_WRITE_SINGLE", "--access-mode=READ_ONLY_MANY"),
        ({"subnet": "none"}, "no subnet none", "gcloud compute networks subnets list"),
        ({"subnet": "dark"}, "private Google access is off", "--enable-private-ip-google-access"),
        ({"service_account": "other@my-project.iam.gserviceaccount.com"}, "no service account other@", "create other"),
        ({"image": f"us-central1-docker.pkg.dev/my-project/runs/none@{DIGEST}"}, "not in its registry",
         "gcloud artifacts docker images list"), ({"secret": SECRET}, "no secret keys", "gcloud secrets create keys"),
    ]  # fmt: skip
    for changed, message, hint in table:
        found = refusals(**changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    assert refusals(data_disks=["weights"]) == []
    google.rights.discard("compute.disks.useReadOnly")
    assert any("compute.disks.useReadOnly" in said for said, _ in refusals(data_disks=["weights"]))
    google.rights.discard("compute.instances.create")
    google.there[f"iam/v1/projects/-/serviceAccounts/{ACCOUNT}"]["disabled"] = True
    found = refusals()
    assert any("compute.instances.create" in said and "add-iam-policy-binding my-project" in m for said, m in found)
    assert any("is disabled" in said and "service-accounts enable" in mends for said, mends in found)


def test_check_says_what_it_doubts(google: FakeGoogle) -> None:
    """Frames too small for the cards beside GPUs; a private machine whose image is elsewhere."""
    older = {"type": "zones/z/diskTypes/pd-ssd", "users": ["a"]}
    google.there["compute/v1/projects/my-project/zones/us-central1-a/disks/older"] = older
    google.there["compute/v1/projects/my-project/regions/us-central1/subnetworks/g1"] = {
        "network": f"{google.url}/compute/v1/projects/my-project/global/networks/default"
    }  # fmt: skip
    image = f"registry.example/t@{DIGEST}"
    found = list(cloud(**GPUS, gpu_subnets=["g1"] * 4, memory_gib=1000, image=image, zones=["us-central1-a"],
                       data_disks=["older"]).questions())  # fmt: skip
    said = {one.message: one.hint for one in found if one.kind == "doubtful"}
    assert "hyperdisk-ml" in said["the disk older in us-central1-a (pd-ssd) is attached to 1 machines already"]
    assert "mtu=8896" in said["the network of g1 has an MTU of 1460, not 8896"]
    assert "Cloud NAT" in said["default leads to Google and nowhere else"]


def test_check_without_a_sign_in_or_with_an_api_that_is_off(
    google: FakeGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"code": 403, "message": "Compute Engine API has not been used", "details": [{"reason": "SERVICE_DISABLED"}]}
    google.before.append(
        times(1, HTTPAnswer(status=403, document={"error": off}), "GET", "/compute/v1/projects/my-project")
    )
    assert any("has not been used" in said and "gcloud services enable" in mends for said, mends in refusals())
    google.before.append(times(9, HTTPAnswer(status=400, document={"error": "invalid_grant"}), "POST", "/token"))
    assert any("refused or has expired" in said and "gcloud auth" in mends for said, mends in refusals())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    assert any("/nonexistent" in said and "gcloud auth" in mends for said, mends in refusals())


def steps(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


@pytest.mark.slow
def test_spot_takes_the_machine_and_the_run_goes_on(google: FakeGoogle, tmp_path: Path) -> None:
    """The notice saves; the run is lost with Google's reason; the next one goes on, with every loss in place."""
    found = cloud(
        python=sys.executable,
        mount=str(tmp_path / "there"),
        exchange_s=0.3,
        grace_s=8,
        cores=1,
        spot=True,
        memory_gib=1,
    )
    trial = PlaceTrial(
        executor=BucketRuns(kind="gce", name="vm", place=found.place, cloud=found), home=tmp_path / "here"
    )
    folder = trial.write("taken")
    trial.start(folder, steps=4000, step_s=0.05, checkpoint_every=5000)
    trial.wait(lambda: trial.status(folder).status is PlaceStatus.RUNNING and len(steps(folder)) > 5)
    [name] = google.instances
    google.interrupt(name)
    lost = trial.reach(folder, PlaceStatus.LOST)
    assert lost.message == "preempted: Spot took the machine"
    at = folder.state().checkpoint_step
    assert at is not None
    assert at > 5  # saved by the notice: its own turn never comes
    google.may_delete = False  # this machine stops, and stays until the client collects
    trial.start(folder, 2, steps=at + 10, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert steps(folder) == {step: 1 / step for step in range(1, at + 11)}
    assert folder.state().lost_steps == 0
    trial.wait(lambda: google.instances == {})
