"""Azure's machines as a place: what is sent, what the machine does with it, what `check` finds, and APIs that fail."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.record_azure_schema import MACHINES, excerpt
from tests.places.works import TAG, WORK

from tonnage.errors import InputError, TonnageError
from tonnage.places.azure.checks import grants
from tonnage.places.azure.machine import end_script, login, machine_of
from tonnage.places.azure.machines import AzureMachines
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import Phase, PlaceStatus
from tonnage.runs import RunFolder
from tonnage.secret_references import fill_environment
from tonnage.testing.azure.cloud import GROUP, IDENTITY, SUBSCRIPTION, FakeAzure, azure_fault
from tonnage.testing.http_service import Asked, HTTPAnswer, times
from tonnage.testing.places import PlaceTrial

pytestmark = pytest.mark.heavy
DIGEST = f"sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "azure", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "cores": 2,
    "memory_gib": 8, "bucket": "az://runs@account.blob.core.windows.net/tonnage", "instance_type": "Standard_D2s_v5",
    "boot_image": "canonical:ubuntu:server:latest", "identity": IDENTITY, "subnet": "net/runs",
    "ssh_public_key": "ssh-ed25519 AAAA me", "time_limit_minutes": 240, "image": f"team.azurecr.io/tonnage@{DIGEST}",
}  # fmt: skip
RESERVED = f"{GROUP}/providers/Microsoft.Compute/capacityReservationGroups/mine"


def cloud(**changed: Any) -> AzureMachines:
    attempts = changed.pop("attempts", 3)
    terms = {"image": f"registry.example/t@{DIGEST}"} if changed.pop("elsewhere", False) else {}
    place = AzurePlace(**(TERMS | terms | changed))
    return AzureMachines(name="vm", place=place, attempts=attempts, sleep=lambda _: time.sleep(0.02))


def here(**changed: Any) -> AzureMachines:
    """With an image that needs no login: a pretended machine has no metadata service."""
    return cloud(elsewhere=True, **changed)


@pytest.mark.parametrize("form", [
    {}, {"spot": True, "grace_s": 20}, {"spot": True, "grace_s": 10, "most_usd_per_hour": 12.5}, {"zones": ["1", "3"]},
    {"gpus": 8, "instance_type": "Standard_ND96isr_H100_v5", "gpu_memory_gib": 80}, {"capacity_reservation": RESERVED},
    {"public_address": True, "secret": "azure:keys/hf", "subnet": f"{GROUP}/providers/Microsoft.Network/x/subnets/a"},
    {"boot_image": f"{GROUP}/providers/Microsoft.Compute/images/mine"}, {"disk_encryption_set": RESERVED},
    {"boot_image": "/SharedGalleries/a/Images/b/Versions/1"}, {"boot_image": "/CommunityGalleries/a/Images/b"},
    {"patch": {"VirtualMachines_CreateOrUpdate": {"properties": {"securityProfile": {"encryptionAtHost": True}}}}},
])  # fmt: skip
def test_every_form_is_one_that_the_models_have(form: dict[str, Any]) -> None:
    """Disk and card go with the machine; nothing reaches it; the same bytes twice."""
    requests = cloud(**form).requests(WORK)
    assert cloud(**form).requests(WORK) == requests
    assert [one.body.get("zones") for one in requests] == ([[zone] for zone in form.get("zones", ())] or [None])
    for one in requests:
        told = one.body["properties"]
        [card] = told["networkProfile"]["networkInterfaceConfigurations"]
        [address] = card["properties"]["ipConfigurations"]
        assert told["storageProfile"]["osDisk"]["deleteOption"] == card["properties"]["deleteOption"] == "Delete"
        assert ("publicIPAddressConfiguration" in address["properties"]) == ("public_address" in form)
        assert told["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"]
        if form.get("spot"):
            assert (told["priority"], told["evictionPolicy"]) == ("Spot", "Delete")
            assert told["billingProfile"]["maxPrice"] == form.get("most_usd_per_hour", -1)


REFUSED = [
    ({"subscription": "mine"}, "subscription"), ({"instance_type": "ND96"}, "instance_type"),
    ({"zones": ["4"]}, "zones"),
    ({"bucket": "az://runs/t"}, "CONTAINER@ACCOUNT"), ({"bucket": "s3://runs/t"}, "Blob Storage"),
    ({"boot_image": "ubuntu"}, "boot_image"), ({"identity": "tonnage-run"}, "identity"), ({"subnet": "runs"}, "subnet"),
    ({"ssh_public_key": "/home/me/.ssh/id"}, "ssh_public_key"), ({"secret": "hf"}, "VAULT/NAME"),
    ({"secret": "aws:a"}, "VAULT/NAME"),
    ({"spot": True, "grace_s": 60}, "30 s"), ({"most_usd_per_hour": 3.0}, "spot machines"),
    ({"spot": True, "grace_s": 20, "capacity_reservation": RESERVED}, "not bought as spot"),
    ({"labels": {"a/b": "c"}}, "name of a tag"), ({"image": "a/t:latest"}, "no digest"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


@pytest.mark.parametrize(("patch", "said"), [
    ({"properties": {"prioritty": "Spot"}}, r"properties\.prioritty: there is no such member"),
    ({"properties": {"priority": "Cheap"}}, "'Cheap' is none of Regular"), ({"zones": "1"}, "a list, not"),
    ({"properties": {"billingProfile": {"maxPrice": "1"}}}, "a number, not"), ({"tags": {"a": 1}}, "a text, not"),
    ({"properties": {"storageProfile": {"osDisk": {"diskSizeGB": "200"}}}}, "a number, not '200'"),
    ({"properties": {"osProfile": {"customData": "x" * 70_000}}}, "65535 at most"),
])  # fmt: skip
def test_what_azure_would_refuse_is_refused_before_anything_is_sent(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cloud(patch={"VirtualMachines_CreateOrUpdate": patch}).requests(WORK)


def test_the_recorded_members_are_those_of_the_installed_models() -> None:
    pytest.importorskip("azure.mgmt.compute")
    assert json.loads(MACHINES.file.read_text()) == excerpt()


def test_the_machines_scripts_are_ones_that_bash_reads(tmp_path: Path) -> None:
    """The registry's token is on no command line; done it deletes itself, failed it lets its capacity go."""
    place = cloud(setup=["true"]).place
    body = machine_of(place, WORK, "")
    first = base64.b64decode(body["properties"]["osProfile"]["customData"]).decode()
    (tmp_path / "first").write_text(first)
    subprocess.run(["bash", "-n", str(tmp_path / "first")], check=True)
    [line] = login(place.image)
    assert login("registry.example/tonnage") == ()
    for name, text in {
        "curl": 'case "$*" in *identity*) echo \'{"access_token":"aad.secret"}\';; '
                '*exchange*) echo "$@" > exchanged; echo \'{"refresh_token":"acr.secret"}\';; '
                '*) echo "$@" >> called;; esac',
        "docker": "cat > signed; echo $@ >> signed",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, check=True)
    printed = (tmp_path / "signed").read_text().split()
    assert (printed[0], printed[-2:]) == ("acr.secret", ["--password-stdin", "team.azurecr.io"])
    assert "access_token=aad.secret" in (tmp_path / "exchanged").read_text()
    end = end_script(f"{place.group}/providers/Microsoft.Compute/virtualMachines/{WORK.name}").replace(
        "/bin/systemctl", "echo poweroff >> called #"
    )
    for status, called in (("0", "-X DELETE"), ("1", "/deallocate?")):
        (tmp_path / "called").write_text("")
        subprocess.run(["bash", "-c", end], cwd=tmp_path, env={**env, "EXIT_STATUS": status}, check=True)
        assert called in (tmp_path / "called").read_text(), status
        assert "poweroff" not in (tmp_path / "called").read_text()
    (tmp_path / "curl").write_text("#!/bin/sh\nexit 22\n")  # it may not
    subprocess.run(["bash", "-c", end], cwd=tmp_path, env={**env, "EXIT_STATUS": "0"}, check=True)
    assert "poweroff" in (tmp_path / "called").read_text()


def made(one: AzureMachines, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


@pytest.fixture
def quiet(azure: FakeAzure) -> Iterator[FakeAzure]:
    """Machines that run and do nothing."""
    yield azure
    for one in azure.machines.values():
        if one.machine is not None:
            one.machine.kill()


def test_sent_twice_it_is_one_machine(quiet: FakeAzure) -> None:
    first = made(here())
    assert made(here()) == first == here().find(WORK.token) == WORK.name
    assert len(quiet.machines) == 1
    assert here().find("ffffffffffff") is None


@pytest.mark.parametrize("refusal", [
    azure_fault(429, "TooManyRequests", "slower"), azure_fault(503, "ServerBusy", "later"),
])  # fmt: skip
def test_throttled_failing_and_lost_answers_make_no_second_machine(quiet: FakeAzure, refusal: HTTPAnswer) -> None:
    quiet.before.append(times(1, refusal, "PUT", "/virtualMachines/"))
    quiet.after.append(times(1, refusal, "PUT", "/virtualMachines/"))
    made(here())
    assert len(quiet.machines) == 1


def test_a_zone_without_capacity_is_passed_over_and_none_is_an_error(quiet: FakeAzure) -> None:
    """What Azure has left of it is removed; what is no question of capacity is asked of no second zone."""
    quiet.full["1"] = "ZonalAllocationFailed"
    assert made(here(zones=["1", "2"])) == f"{WORK.name}-2"
    quiet.full["2"] = "SkuNotAvailable"
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    with pytest.raises(TonnageError, match=r"zone 1: ZonalAllocationFailed.*; zone 2: SkuNotAvailable") as raised:
        made(here(zones=["1", "2"]), other)
    assert "--on any" in (raised.value.hint or "")
    quiet.full["1"] = "OperationNotAllowed"
    with pytest.raises(TonnageError, match="zone 1: OperationNotAllowed") as raised:
        made(here(zones=["1", "2"]), other)
    assert "zone 2" not in raised.value.message
    assert raised.value.hint == "`tonnage places check vm`"
    while len(quiet.machines) > 1:
        time.sleep(0.02)


def test_a_request_that_is_refused_takes_no_living_machine_away(quiet: FakeAzure) -> None:
    """Another body under the name of a machine that works: Azure refuses it, and the machine stays."""
    job = made(here())
    with pytest.raises(TonnageError, match="PropertyChangeNotAllowed"):
        made(here(setup=["true"]))
    assert [*quiet.machines] == [job]
    assert not quiet.machines[job].taken


def test_a_machine_whose_work_never_began_says_why_and_is_an_orphan_until_it_is_deleted(azure: FakeAzure) -> None:
    """The console's last line is the reason, whether it let its capacity go or was switched off."""
    for may, word in ((True, "deallocated"), (False, "stopped")):
        azure.may_delete = may
        one = here(setup=["echo 'mount: no such disk' >&2", "exit 32"])
        job = made(one)
        while (view := one.view(job)).phase is not Phase.ENDED:
            time.sleep(0.02)
        assert (view.word, view.reason) == (word, "mount: no such disk")
        [found] = one.tagged("0a1b2c3d")
        assert (found.job_id, found.tag, found.view.phase) == (job, TAG, Phase.ENDING)
        assert one.tagged("ffffffff") == []
        one.end(job, WORK.token)
        while one.view(job).phase is not Phase.GONE:
            time.sleep(0.02)
        one.end(job, WORK.token)
    assert one.view(job).reason == ""
    assert "spot has evicted it" in here(spot=True, grace_s=10).view(job).reason


def test_machines_are_found_page_by_page(quiet: FakeAzure) -> None:
    quiet.page = 2
    one = here()
    for number in range(5):
        token = f"0123456789a{number}"
        made(one, replace(WORK, name=f"t-{number}", token=token, tags={**WORK.tags, "tonnage-token": token}))
    assert len(one.tagged("0a1b2c3d")) == 5
    assert one.find("0123456789a4") == "t-4"


def refusals(kind: str = "refused", **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="azure", name="vm", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == kind]


def test_check_names_what_is_missing_and_the_command_that_mends_it(azure: FakeAzure) -> None:
    """Each alone."""
    assert refusals() == []
    a100 = {"instance_type": "Standard_NC24ads_A100_v4", "cores": 24}
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "az://nothing@account.blob.core.windows.net/a"}, "no container nothing",
         "az storage container create"),
        ({"subscription": SUBSCRIPTION.replace("1", "9")}, "no subscription 9", "az account list"),
        ({"resource_group": "none"}, "no resource group none", "az group create --name none --location eastus"),
        ({"region": "westus"}, "westus has no Standard_D2s_v5", "az vm list-skus --location westus"),
        ({"instance_type": "Standard_Z1"}, "eastus has no Standard_Z1", "--size Standard_Z1"),
        ({"cores": 64}, "has 2 cores, 8 GiB and 0 GPUs", "cores = 2"),
        ({**a100, "zones": ["1", "2"]}, "zone 2 of eastus has no Standard_NC24ads_A100_v4: its zones are 1",
         "list-skus"),
        (a100, "the quota StandardNCADSA100v4Family of eastus is 0 vCPUs, 1 of it used: 24", "portal.azure.com"),
        ({**a100, "spot": True, "grace_s": 10}, "the quota lowPriorityCores", "another region"),
        ({"instance_type": "Standard_B1s", "cores": 1, "memory_gib": 1, "spot": True, "grace_s": 10},
         "not sold as spot", "spot = false"),
        ({"boot_image": "canonical:ubuntu:none:latest"}, "no image canonical:ubuntu:none", "az vm image list"),
        ({"subnet": "net/none"}, "no subnet net/none", "az network vnet subnet list"),
        ({"subnet": "net/dark"}, "no way out", "--nat-gateway"),
        ({"identity": IDENTITY + "2"}, "no identity tonnage-run2", "az identity create --name tonnage-run2"),
        ({"secret": "azure:none/hf"}, "no vault none", "az keyvault create --name none"),
    ]  # fmt: skip
    for changed, message, hint in table:
        found = refusals(**changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    assert refusals(secret="azure:keys/hf") == []
    azure.rights.remove("Microsoft.Compute/virtualMachines/write")
    azure.skus[0]["restrictions"] = [{"type": "Location", "reasonCode": "NotAvailableForSubscription"}]
    found = refusals()
    assert any("virtualMachines/write" in said and "az role assignment create" in mends for said, mends in found)
    assert any("NotAvailableForSubscription" in said for said, _ in found)


def test_check_says_what_it_doubts(azure: FakeAzure) -> None:
    """A way out that Azure gives up, an open subnet."""
    assert azure.machines == {}
    assert any("default alone" in said for said, _ in refusals("doubtful", subnet="net/older"))
    assert any("no network security group" in said for said, _ in refusals("doubtful", public_address=True))


def test_check_without_a_sign_in(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that Azure refuses, and none at all."""
    azure.before.append(times(99, azure_fault(401, "ExpiredAuthenticationToken", "expired"), "GET", "/subscriptions"))
    assert any("refused or has expired" in said and "az login" in mends for said, mends in refusals())
    azure.before.clear()
    monkeypatch.setenv("IDENTITY_HEADER", "another")
    monkeypatch.setenv("PATH", "/nonexistent")  # no `az`, no PowerShell
    found = refusals()
    assert any("refused or has expired" in said and "az login" in mends for said, mends in found)


def test_a_right_is_one_of_a_roles_actions() -> None:
    assert grants({"actions": ["*"], "notActions": []}, "Microsoft.Compute/virtualMachines/write")
    assert not grants({"actions": ["*"], "notActions": ["Microsoft.Compute/*/write"]}, "Microsoft.Compute/a/write")
    assert not grants({"actions": ["*/read"]}, "Microsoft.Compute/virtualMachines/write")


def test_a_secret_is_read_by_the_machines_identity(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Key Vault, with a token for it alone."""
    monkeypatch.setenv("TONNAGE_AZURE_VAULT_URL", azure.url)
    monkeypatch.delenv("HF_TOKEN", raising=False)

    def vault(asked: Asked) -> HTTPAnswer | None:
        if asked.path != "/secrets/hf":
            return None
        assert asked.headers["authorization"] == "Bearer test-token of https://vault.azure.net"
        return HTTPAnswer(document={"value": '{"HF_TOKEN": "hf_1"}'})

    azure.before.append(vault)
    fill_environment("azure:keys/hf", os.environ, "--secret", region="eastus")
    assert os.environ["HF_TOKEN"] == "hf_1"
    monkeypatch.delenv("HF_TOKEN")
    azure.before.clear()
    with pytest.raises(TonnageError, match="azure:keys/hf"):
        fill_environment("azure:keys/hf", os.environ, "--secret", region="eastus")


def steps(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


@pytest.mark.slow
def test_spot_evicts_the_machine_and_the_run_goes_on(azure: FakeAzure, tmp_path: Path) -> None:
    """The Preempt event saves; the run is lost with its reason; the next one goes on, with every loss in place."""
    found = here(python=sys.executable, mount=str(tmp_path / "there"), exchange_s=0.3, grace_s=8, cores=1, spot=True,
                 memory_gib=1)  # fmt: skip
    trial = PlaceTrial(
        executor=BucketRuns(kind="azure", name="vm", place=found.place, cloud=found), home=tmp_path / "here"
    )
    folder = trial.write("taken")
    azure.notice_s = 8.0
    trial.start(folder, steps=4000, step_s=0.05, checkpoint_every=5000)
    trial.wait(lambda: trial.status(folder).status is PlaceStatus.RUNNING and len(steps(folder)) > 5)
    [name] = azure.machines
    azure.evict(name)
    lost = trial.reach(folder, PlaceStatus.LOST)
    assert "spot has evicted it" in lost.message
    at = folder.state().checkpoint_step
    assert at is not None
    assert at > 5  # saved by the notice: its own turn never comes
    azure.may_delete = False  # this machine stops, and stays until the client collects
    trial.start(folder, 2, steps=at + 10, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert steps(folder) == {step: 1 / step for step in range(1, at + 11)}
    assert folder.state().lost_steps == 0
    trial.wait(lambda: azure.machines == {})
