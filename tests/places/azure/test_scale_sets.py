"""Several of Azure's machines for one run: what is sent, all or none, one lost, and what `check` says of them."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places.azure.test_machines import RESERVED, TAG, TERMS, WORK

from tonnage.errors import InputError, TonnageError
from tonnage.places.azure.checks import RIGHTS, SET_RIGHTS
from tonnage.places.azure.place import AzurePlace
from tonnage.places.azure.scale_sets import AzureScaleSets
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import JobView, Phase
from tonnage.places.terraform.files import terraform_files
from tonnage.runs import RunFolder
from tonnage.testing.azure.cloud import GROUP, FakeAzure, azure_fault
from tonnage.testing.http_service import times

pytestmark = pytest.mark.heavy
NEAR = f"{GROUP}/providers/Microsoft.Compute/proximityPlacementGroups/near"
SET = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/{WORK.name}"


def cloud(**changed: Any) -> AzureScaleSets:
    terms = TERMS | {"nodes": 3, "image": f"registry.example/t@sha256:{'0' * 64}"} | changed
    return AzureScaleSets(name="vm", place=AzurePlace(**terms), attempts=3, sleep=lambda _: time.sleep(0.02))


def made(one: AzureScaleSets, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("form", [
    {}, {"spot": True, "grace_s": 20, "most_usd_per_hour": 2.5}, {"zones": ["1", "3"]}, {"public_address": True},
    {"capacity_reservation": RESERVED}, {"proximity_placement_group": NEAR}, {"disk_encryption_set": RESERVED},
    {"patch": {"VirtualMachineScaleSets_CreateOrUpdate": {"properties": {"zoneBalance": False}}}},
])  # fmt: skip
def test_all_are_one_set_that_the_models_have(form: dict[str, Any]) -> None:
    """Each machine is as one alone would be; the same bytes twice; one set for each zone that is asked."""
    requests = cloud(**form).requests(WORK)
    assert cloud(**form).requests(WORK) == requests
    assert [one.body.get("zones") for one in requests] == ([[zone] for zone in form.get("zones", ())] or [None])
    for one in requests:
        assert one.body["sku"] == {"name": "Standard_D2s_v5", "capacity": 3}
        assert one.body["tags"]["tonnage-machines"] == "3"
        told = one.body["properties"]
        assert (told["orchestrationMode"], told["platformFaultDomainCount"]) == ("Flexible", 1)
        assert told.get("proximityPlacementGroup") == ({"id": NEAR} if "proximity_placement_group" in form else None)
        profile = told["virtualMachineProfile"]
        alone = AzureScaleSets(name="vm", place=AzurePlace(**(TERMS | form | {"proximity_placement_group": None})))
        [single, *_] = alone.requests(WORK) if "proximity_placement_group" not in form else [None]
        if single is not None and "patch" not in form:
            same = {key: value for key, value in single.body["properties"].items() if key not in
                    {"hardwareProfile", "osProfile"}}  # fmt: skip
            assert {key: profile[key] for key in same} == same
        assert len(profile["osProfile"]["computerNamePrefix"]) <= 15
        assert "computerName" not in profile["osProfile"]


def test_a_machine_of_a_set_ends_itself_by_the_name_that_it_learns(tmp_path: Path) -> None:
    """Its script is one that bash reads; the metadata service says which machine it is."""
    [request] = cloud().requests(WORK)
    first = base64.b64decode(request.body["properties"]["virtualMachineProfile"]["osProfile"]["customData"]).decode()
    assert "--machines 3" not in first  # WORK's own command is not the supervisor's
    end = first.split("cat > /opt/tonnage/end.sh <<'END-OF-TONNAGE-FILE'\n")[1].split("\nEND-OF-TONNAGE-FILE")[0]
    curl = 'case "$*" in *resourceId*) echo /subscriptions/s/virtualMachines/t_0a1b;; *identity*) ' \
           'echo \'{"access_token":"x"}\';; *) echo "$@" >> called;; esac'  # fmt: skip
    (tmp_path / "curl").write_text(f"#!/bin/sh\n{curl}\n")
    (tmp_path / "curl").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EXIT_STATUS": "0"}
    subprocess.run(["bash", "-c", end], cwd=tmp_path, env=env, check=True)
    assert (
        "https://management.azure.com/subscriptions/s/virtualMachines/t_0a1b?api-version="
        in (tmp_path / "called").read_text()
    )


@pytest.mark.parametrize(("changed", "said"), [
    ({"nodes": 1, "proximity_placement_group": NEAR}, "of several machines"), ({"nodes": 0}, "nodes"),
    ({"nodes": 1001}, "nodes"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_when_the_place_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_what_azure_would_refuse_is_refused_before_anything_is_sent() -> None:
    patch = {"VirtualMachineScaleSets_CreateOrUpdate": {"sku": {"capacity": "3"}}}
    with pytest.raises(InputError, match=r"sku\.capacity: a number, not '3'"):
        cloud(patch=patch).requests(WORK)
    with pytest.raises(InputError, match="65535 at most"):
        cloud(setup=["x" * 60_000]).requests(WORK)


def test_sent_twice_it_is_one_set(azure: FakeAzure) -> None:
    """After throttling, a failure and a lost answer too; a set that is there is not put again, whoever has ended."""
    azure.before.append(times(1, azure_fault(429, "TooManyRequests", "slower"), "PUT", "/virtualMachineScaleSets/"))
    azure.after.append(times(1, azure_fault(503, "ServerBusy", "later"), "PUT", "/virtualMachineScaleSets/"))
    one = cloud()
    job = made(one)
    assert job == f"scale-set/{WORK.name}" == one.find(WORK.token)
    assert len(azure.machines) == 3
    azure.vanish(next(iter(azure.machines)))
    assert made(cloud()) == job
    assert len(azure.machines) == 2
    assert one.find("ffffffffffff") is None
    [found] = one.tagged("0a1b2c3d")
    assert (found.job_id, found.tag, found.view.phase) == (job, TAG, Phase.RUNNING)
    assert one.tagged("ffffffff") == []
    one.end(job, WORK.token)
    assert one.view(job).phase is Phase.GONE
    until(lambda: azure.machines == {})
    one.end(job, WORK.token)  # nothing happens


def test_too_few_machines_are_none(azure: FakeAzure) -> None:
    """A zone that has two of three is passed over and what it gave is deleted; nowhere enough is an error."""
    azure.has["1"] = 2
    one = cloud(zones=["1", "2"])
    assert made(one) == f"scale-set/{WORK.name}-2"
    until(lambda: {machine.body["zones"][0] for machine in azure.machines.values()} == {"2"})
    azure.has["2"], azure.full["1"] = 1, "ZonalAllocationFailed"
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    other = replace(other, tags={**WORK.tags, "tonnage-token": other.token})
    with pytest.raises(TonnageError, match=r"zone 1: ZonalAllocationFailed.*; zone 2: AllocationFailed") as raised:
        made(one, other)
    assert "--on any" in (raised.value.hint or "")
    assert one.find(other.token) is None
    until(lambda: len(azure.machines) == 3)


def test_a_set_that_is_made_with_too_few_machines_is_deleted(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Azure called made is counted."""
    one = cloud()
    found = AzureScaleSets._members
    monkeypatch.setattr(AzureScaleSets, "_members", lambda self, name: dict(list(found(self, name).items())[1:]))
    with pytest.raises(TonnageError, match="it had 2 of 3 machines, which are deleted"):
        made(one)
    until(lambda: azure.machines == {})
    assert azure.sets == {}


def test_one_that_is_evicted_is_why_the_job_ends(azure: FakeAzure) -> None:
    """While the others still work; and a machine whose work never began says why."""
    one = cloud(spot=True, grace_s=10)
    job = made(one)
    until(lambda: one.view(job).phase is Phase.RUNNING)
    azure.notice_s = 0.0
    azure.evict(next(iter(azure.machines)))
    until(lambda: len(azure.machines) == 2)
    view = one.view(job)
    assert (view.phase, view.job_id) == (Phase.RUNNING, job)
    assert view.reason.startswith("1 of 3 machines: Azure no longer has the machine: spot has evicted it")
    one.end(job, WORK.token)
    broken = cloud(setup=["echo 'mount: no such disk' >&2", "exit 32"])
    other = replace(WORK, token="ba9876543210", name="t-b", tags={**WORK.tags, "tonnage-token": "ba9876543210"})
    job = made(broken, other)
    until(lambda: broken.view(job).phase is Phase.ENDED)
    assert broken.view(job).reason.endswith(": mount: no such disk")
    [left] = [found for found in broken.tagged("0a1b2c3d") if found.job_id == job]
    assert left.view.phase is Phase.ENDING  # it is billed until it is deleted


def test_machines_alone_and_sets_are_distinguished(azure: FakeAzure) -> None:
    """Whatever places.toml says of `nodes` by now."""
    alone = cloud(nodes=1)
    single = made(alone, replace(WORK, token="ba9876543210", name="t-b",
                                 tags={**WORK.tags, "tonnage-token": "ba9876543210"}))  # fmt: skip
    several = made(cloud())
    for one in (alone, cloud()):
        assert {found.job_id for found in one.tagged("0a1b2c3d")} == {single, several}
        assert (one.find("ba9876543210"), one.find(WORK.token)) == (single, several)
        until(lambda one=one: {one.view(single).phase, one.view(several).phase} == {Phase.RUNNING})  # type: ignore[misc]
    alone.end(several, WORK.token)
    assert alone.view(several) == JobView(phase=Phase.GONE, job_id=several)
    assert len(azure.sets) == 0


def findings(kind: str, **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="azure", name="vm", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == kind]


def test_check_asks_for_what_several_machines_need(azure: FakeAzure) -> None:
    """Quota of all, rights on scale sets, a way out of their own, nearness; InfiniBand that they do not get is said."""
    azure.there[NEAR] = {}
    assert findings("refused", proximity_placement_group=NEAR) == []
    assert [said for said, _ in findings("doubtful")] == ["the machines of a run may be far from each other"]
    table: list[tuple[str, dict[str, Any], str, str]] = [
        ("refused", {"nodes": 8}, "quota standardDSv5Family of eastus is 10 vCPUs, 1 of it used: 16", "portal.azure"),
        ("refused", {"proximity_placement_group": NEAR + "2"}, "no proximity placement group near2", "az ppg create"),
        ("refused", {"subnet": "net/older"}, "no way out", "--nat-gateway"),
        ("doubtful", {}, "far from each other", "az ppg create --name tonnage-vm --resource-group ml"),
        ("doubtful", {"instance_type": "Standard_ND96isr_H100_v5"}, "not joined by InfiniBand", 'kind = "azureml"'),
    ]  # fmt: skip
    for kind, changed, message, hint in table:
        found = findings(kind, **changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    azure.rights.remove("Microsoft.Compute/virtualMachineScaleSets/write")
    assert any("virtualMachineScaleSets/write" in said for said, _ in findings("refused"))
    assert not any("virtualMachineScaleSets" in said for said, _ in findings("refused", nodes=1))


def test_the_terraform_files_give_the_rights_that_check_asks_for() -> None:
    """On scale sets where a run has several machines, and not else."""
    several, alone = ("".join(terraform_files("vm", cloud(nodes=nodes).place).values()) for nodes in (2, 1))
    assert all(right in several for right in (*RIGHTS, *SET_RIGHTS))
    assert not any(right in alone for right in SET_RIGHTS)
