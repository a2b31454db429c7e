"""EC2 as a place: what is sent, what the machine does with it, what `check` finds, and a service that fails."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3

from tonnage.errors import InputError, TonnageError
from tonnage.http.aws_shapes import check_request
from tonnage.places.aws.ec2 import EC2, PHASES, login, view_of
from tonnage.places.aws.ec2_checks import quota_of
from tonnage.places.aws.place import EC2Place
from tonnage.places.bucket.boot import first_script, run_script, unit_file
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.states import Phase, PlaceStatus
from tonnage.runs import RunFolder
from tonnage.testing.aws.ec2 import FakeEC2, FakeEC2Error
from tonnage.testing.aws.query_protocol import operation_model
from tonnage.testing.aws.sagemaker import FakeSageMaker
from tonnage.testing.places import PlaceTrial

pytestmark = pytest.mark.heavy
DIGEST = f"sha256:{'0' * 64}"
TERMS: dict[str, Any] = {
    "kind": "ec2", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 2, "memory_gib": 8,
    "image": f"registry.example/tonnage@{DIGEST}", "spot": True, "ami": "ami-0123456789abcdef0",
    "instance_profile": "tonnage-run", "instance_type": "m5.large", "time_limit_minutes": 240,
    "subnets": ["subnet-1", "subnet-2"], "security_groups": ["sg-1"],
}  # fmt: skip
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first", token="0123456789ab", home="0a1b2c3d", owner="me",
    tag="tonnage:0a1b2c3d:0123456789ab:first", command=("sleep", "60"), env={"A": "it's $HOME"},
    tags={"tonnage": "tonnage:0a1b2c3d:0123456789ab:first", "tonnage-home": "0a1b2c3d",
          "tonnage-token": "0123456789ab", "tonnage-run": "first"}, max_cost_usd=None,
)  # fmt: skip


def cloud(**changed: Any) -> EC2:
    attempts = changed.pop("attempts", 3)
    return EC2(name="vm", place=EC2Place(**(TERMS | changed)), attempts=attempts, sleep=lambda _: None)


FORMS: list[dict[str, Any]] = [
    {}, {"spot": False}, {"most_usd_per_hour": 12.5}, {"kms_key": "alias/mine", "disk_gib": 2000},
    {"spot": False, "reservation": "cr-0123456789abcdef0"}, {"public_address": True, "secret": "aws:keys"},
    {"spot": False, "reservation": "cr-0123456789abcdef0", "capacity_block": True}, {"gpus": 8, "gpu": "h100"},
    {"instance_profile": "arn:aws:iam::123456789012:instance-profile/tonnage-run"},
    {"patch": {"CreateLaunchTemplate": {"LaunchTemplateData": {"EbsOptimized": True}}}},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_the_service_takes(form: dict[str, Any]) -> None:
    """By botocore's model. No machine has version 1 of the metadata service, a plain disk, or outlives its work."""
    template, fleet = cloud(**form).requests(WORK)
    check_request("ec2", "CreateLaunchTemplate", template.body)
    check_request("ec2", "CreateFleet", fleet.body)
    data = template.body["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"]
    assert (fleet.body["Type"], fleet.body["ClientToken"]) == ("instant", WORK.token)
    spot = fleet.body["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "spot"
    assert spot == ("SpotOptions" in fleet.body) == cloud(**form).place.spot


REFUSED = [
    ({"nodes": 2, "instance_type": "p5.48xlarge", "public_address": True}, "several interfaces"),
    ({"spot": False, "reservation": "cr-0123456789abcdef0", "capacity_block": True, "placement_group": "close"},
     "close to each other already"), ({"nodes": 0}, "nodes"),
    ({"reservation": "cr-0123456789abcdef0"}, "not bought as spot"),
    ({"spot": False, "capacity_block": True}, "needs its `reservation`"),
    ({"spot": False, "most_usd_per_hour": 1.0}, "of spot instances"), ({"grace_s": 110}, "120 s"),
    ({"bucket": "file:///runs"}, "S3"), ({"image": "registry.example/t:latest"}, "names no digest"),
    ({"ami": "ami-latest"}, "ami"), ({"subnets": []}, "subnets"), ({"instance_type": "p5"}, "instance_type"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_what_the_service_would_refuse_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InputError, match="there is no such member"):
        cloud(patch={"CreateFleet": {"Spot": True}}).requests(WORK)
    with pytest.raises(InputError, match=r"'p9\.48xlarge' is none of"):
        cloud(instance_type="p9.48xlarge").requests(WORK)
    with pytest.raises(InputError, match="EC2 takes 16384") as raised:
        cloud(setup=["# " + "x" * 17_000]).requests(WORK)
    assert "into the image" in (raised.value.hint or "")
    with pytest.raises(ValueError, match="cannot be a part of it"):
        first_script(cloud(setup=["END-OF-TONNAGE-FILE"]).place, WORK, login=())


def test_the_machines_script_is_one_that_bash_reads(tmp_path: Path) -> None:
    """Quotes and variables of values stay as they are; the registry's password is on no command line."""
    ecr = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/tonnage@{DIGEST}"
    place = cloud(image=ecr, gpus=8, setup=["mkfs.ext4 /dev/nvme1n1"]).place
    script = tmp_path / "user-data"
    script.write_text(first_script(place, WORK, login=login(ecr)))
    subprocess.run(["bash", "-n", str(script)], check=True)
    run = tmp_path / "run.sh"
    run.write_text(run_script(place, WORK, login(ecr)).replace("docker run", "echo run").replace("mkfs.ext4", "true"))
    (tmp_path / "aws").write_text("#!/bin/sh\necho password-of-$4\n")
    (tmp_path / "docker").write_text("#!/bin/sh\nread -r got; echo $got $1 $5 >&2\n")
    for name in ("aws", "docker"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["bash", str(run)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": "/root"},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "A=it's $HOME" in done.stdout
    assert "--gpus all" in done.stdout
    assert done.stderr.startswith("password-of-eu-west-1 login")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_machines_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Ended by a limit of time and by SIGTERM with a grace; whatever happens, the machine powers off."""
    unit = tmp_path / "tonnage-run.service"
    unit.write_text(unit_file(cloud().place, WORK))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "tonnage-run" in line] == []
    assert "RuntimeMaxSec=14400" in unit.read_text()
    assert "ExecStopPost=/bin/bash /opt/tonnage/end.sh" in unit.read_text()
    assert "/bin/systemctl --no-block poweroff" in first_script(cloud().place, WORK, login=())


def test_states_are_those_of_all_places() -> None:
    """Each of the service's states has one; who ended an instance is kept."""
    shape = operation_model("ec2", "DescribeInstances").service_model.shape_for("InstanceStateName")
    assert set(shape.enum) == set(PHASES)
    document = {"InstanceId": "i-1", "State": {"Name": "terminated"}}
    spot = {"Code": "Server.SpotInstanceTermination", "Message": "Spot instance termination"}
    by_hand = {"Code": "Client.UserInitiatedShutdown", "Message": "User initiated shutdown"}
    assert (view_of(document | {"StateReason": spot}).phase, view_of(document | {"StateReason": by_hand}).phase) == (
        Phase.ENDED, Phase.CANCELLED,
    )  # fmt: skip
    assert view_of(document | {"StateReason": spot}).reason == "Spot instance termination"


QUOTAS = [
    ("p5.48xlarge", True, "All P5 Spot Instance Requests"), ("p4d.24xlarge", False, "Running On-Demand P instances"),
    ("p4de.24xlarge", True, "All P4, P3 and P2 Spot Instance Requests"), ("x2idn.16xlarge", False, "X instances"),
    ("g6e.xlarge", True, "All G and VT Spot"), ("trn2.48xlarge", False, "Trn instances"),
    ("c7i.large", True, "Standard"),
    ("inf2.xlarge", False, "Inf instances"), ("im4gn.large", False, "Standard"), ("dl1.24xlarge", True, "All DL Spot"),
]  # fmt: skip


@pytest.mark.parametrize(("instance_type", "spot", "said"), QUOTAS)
def test_each_family_has_its_quota(instance_type: str, spot: bool, said: str) -> None:
    assert said in quota_of(instance_type, spot=spot)


def test_sent_twice_it_is_one_instance_and_its_template_is_gone(ec2: FakeEC2) -> None:
    """Also where the first client died before it was told; what runs needs no template."""
    ec2.boot_s = 600
    requests = cloud().requests(WORK)
    first = cloud().send(requests, WORK.token)
    assert cloud().send(requests, WORK.token) == first == cloud().find(WORK.token)
    assert (len(ec2.instances), ec2.templates) == (1, {})
    data = ec2.instances[first].data
    assert base64.b64decode(data["UserData"]).decode() == first_script(cloud().place, WORK, login=())


TEAM: dict[str, Any] = {"nodes": 3, "instance_type": "p5.48xlarge", "placement_group": "close"}


@pytest.mark.parametrize(("instance_type", "cards"), [("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("m5.large", 0)])
def test_several_machines_are_close_have_efa_and_are_all_or_none(instance_type: str, cards: int) -> None:
    """An ordinary interface first, EFA alone on each card; a machine alone has none of it."""
    for spot, where in ((True, "SpotOptions"), (False, "OnDemandOptions")):
        template, asked = cloud(**TEAM | {"instance_type": instance_type, "spot": spot}).requests(WORK)
        check_request("ec2", "CreateLaunchTemplate", template.body)
        check_request("ec2", "CreateFleet", asked.body)
        data = template.body["LaunchTemplateData"]
        kinds = [one.get("InterfaceType") for one in data["NetworkInterfaces"]]
        assert kinds == [None, *["efa-only"] * cards]
        places = [(one["NetworkCardIndex"], one["DeviceIndex"]) for one in data["NetworkInterfaces"] if cards]
        assert len(set(places)) == len(places)
        assert ("AssociatePublicIpAddress" in data["NetworkInterfaces"][0]) == (not cards)
        assert data["Placement"] == {"GroupName": "close"}
        assert asked.body["TargetCapacitySpecification"]["TotalTargetCapacity"] == 3
        least = {"SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": 3}
        assert least.items() <= asked.body[where].items()
        script = data["UserData"]
        assert ("--device /dev/infiniband" in script) == ("FI_PROVIDER=efa" in script) == bool(cards)
        assert "NCCL_SOCKET_IFNAME=^docker,lo,veth" in script
    alone, _ = cloud(instance_type=instance_type).requests(WORK)
    assert [one.get("InterfaceType") for one in alone.body["LaunchTemplateData"]["NetworkInterfaces"]] == [None]
    assert "NCCL_SOCKET_IFNAME" not in alone.body["LaunchTemplateData"]["UserData"]


def test_the_limit_of_a_spot_price_is_of_all_machines() -> None:
    """`most_usd_per_hour` is of one."""
    _, asked = cloud(**TEAM, most_usd_per_hour=20.0).requests(WORK)
    assert asked.body["SpotOptions"]["MaxTotalPrice"] == "60"


def test_an_hour_of_several_machines_is_theirs_together() -> None:
    place = cloud(**TEAM, usd_per_hour=30.0).place
    assert (place.machines, place.run_usd_per_hour) == (3, 90.0)


def test_several_machines_are_one_job(ec2: FakeEC2) -> None:
    """Sent twice they are the same; one that is taken is named while the others work; all are ended together."""
    ec2.boot_s = 600
    one = cloud(nodes=3, efa=False)
    made = one.send(one.requests(WORK), WORK.token)
    assert (made.count(","), len(ec2.instances)) == (2, 3)
    assert one.send(one.requests(WORK), WORK.token) == made == one.find(WORK.token)
    [job] = one.tagged("0a1b2c3d")
    assert (job.job_id, job.view.phase) == (made, Phase.PROVISIONING)
    taken = made.split(",")[1]
    ec2.instances[taken].state = "terminated"
    ec2.instances[taken].reason = ("Server.SpotInstanceTermination", "Spot instance termination")
    view = one.view(made)
    assert (view.phase, view.reason) == (Phase.PROVISIONING, f"{taken}: Spot instance termination")
    one.end(made, WORK.token)
    while one.view(made).phase is Phase.ENDING:
        time.sleep(0.02)
    assert one.view(made).phase is Phase.ENDED
    ec2.vanish(taken)
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.CANCELLED


def test_too_few_machines_are_none(ec2: FakeEC2) -> None:
    """A fleet passes a zone over that has too few; a capacity block gives what it has, which is ended again."""
    ec2.boot_s = 600
    ec2.has = {"subnet-1": 2}
    made = cloud(nodes=3).send(cloud(nodes=3).requests(WORK), WORK.token)
    assert {ec2.instances[one].subnet for one in made.split(",")} == {"subnet-2"}
    block = cloud(nodes=3, spot=False, reservation="cr-0123456789abcdef0", capacity_block=True, subnets=["subnet-1"])
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    with pytest.raises(TonnageError, match="EC2 had 2 of 3 instances, which are ended") as raised:
        block.send(block.requests(other), other.token)
    assert "--on any" in (raised.value.hint or "")
    assert all(one.taken for name, one in ec2.instances.items() if name not in made.split(","))


def times(number: int, refusal: FakeEC2Error, *operations: str) -> Callable[[str, Any], FakeEC2Error | None]:
    """The first so many requests of these operations are answered so."""
    left = [number]

    def fault(operation: str, _: Any) -> FakeEC2Error | None:
        if operation not in operations or not left[0]:
            return None
        left[0] -= 1
        return refusal

    return fault


@pytest.mark.parametrize("refusal", [
    FakeEC2Error(code="RequestLimitExceeded", message="Request limit exceeded", status=503),
    FakeEC2Error(code="InternalError", message="try again", status=500),
])  # fmt: skip
def test_throttled_failing_and_lost_answers_make_no_second_instance(ec2: FakeEC2, refusal: FakeEC2Error) -> None:
    ec2.boot_s = 600
    ec2.before.append(times(2, refusal, "CreateLaunchTemplate"))
    ec2.after.append(times(2, refusal, "CreateFleet"))
    assert cloud().send(cloud().requests(WORK), WORK.token) in ec2.instances
    assert len(ec2.instances) == 1


def test_a_zone_without_capacity_is_passed_over_and_none_is_an_error(ec2: FakeEC2) -> None:
    """Each subnet with EC2's own reason; the next submission may look again."""
    ec2.boot_s = 600
    ec2.full["subnet-1"] = "InsufficientInstanceCapacity"
    assert ec2.instances[cloud().send(cloud().requests(WORK), WORK.token)].subnet == "subnet-2"
    ec2.full["subnet-2"] = "MaxSpotInstanceCountExceeded"
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    with pytest.raises(TonnageError, match=r"subnet-1: InsufficientInstanceCapacity: .*; subnet-2: MaxSpot") as raised:
        cloud().send(cloud().requests(other), other.token)
    assert "tonnage places check vm" in (raised.value.hint or "")
    ec2.full["subnet-2"] = "InsufficientInstanceCapacity"
    other = replace(WORK, token="ba9876543211", name="t-first-0a1b2c3d-ba9876543211")
    with pytest.raises(TonnageError) as raised:
        cloud().send(cloud().requests(other), other.token)
    assert "--on any" in (raised.value.hint or "")


def test_an_instance_that_is_not_shown_yet_is_waited_for(ec2: FakeEC2) -> None:
    """EC2 shows what it has made a while after it has said so: it is not taken for one that is gone."""
    ec2.boot_s, ec2.unseen_s = 600, 0.5
    one = replace(cloud(), sleep=lambda _: time.sleep(0.05))
    made = one.send(one.requests(WORK), WORK.token)
    assert one.view(made).phase is Phase.PROVISIONING


def test_one_that_ended_can_be_ended_again_and_one_that_vanished_is_gone(ec2: FakeEC2) -> None:
    ec2.boot_s = 600
    one = cloud()
    made = one.send(one.requests(WORK), WORK.token)
    one.end(made, WORK.token)
    while one.view(made).phase is Phase.ENDING:
        time.sleep(0.02)
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.CANCELLED
    ec2.vanish(made)
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.GONE


def test_a_machine_whose_work_never_began_says_why(ec2: FakeEC2) -> None:
    """The console's last line is the reason."""
    one = cloud(setup=["echo 'mount: no such disk' >&2", "exit 32"])
    made = one.send(one.requests(WORK), WORK.token)
    while (view := one.view(made)).phase is not Phase.ENDED:
        time.sleep(0.02)
    assert view.reason == "mount: no such disk"
    assert ec2.instances[made].state == "terminated"


def test_orphans_of_a_home_are_found_page_by_page(ec2: FakeEC2) -> None:
    """More than one page of instances; those of another home, and those that have ended, are left alone."""
    ec2.boot_s, ec2.page = 600, 2
    one = cloud()
    for number in range(5):
        token = f"0123456789a{number}"
        tag = f"tonnage:0a1b2c3d:{token}:first"
        work = replace(
            WORK, name=f"t-{number}", token=token, tags={**WORK.tags, "tonnage-token": token, "tonnage": tag}
        )
        one.send(one.requests(work), token)
    assert len(one.tagged("0a1b2c3d")) == 5
    assert one.tagged("ffffffff") == []


def placed(network: dict[str, str], **changed: Any) -> dict[str, Any]:
    here = {"ami": network["ami"], "subnets": [network["subnet"], network["other"]],
            "security_groups": [network["group"]]}  # fmt: skip
    return here | changed


def refusals(network: dict[str, str], **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**placed(network, **changed))
    runs = BucketRuns(kind="ec2", name="vm", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == "refused"]


@pytest.mark.usefixtures("ec2")
def test_check_names_what_is_missing_and_the_command_that_mends_it(aws_network: dict[str, str]) -> None:
    """Each alone; EC2's own word on a start that it does not make is asked too."""
    assert refusals(aws_network) == []
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "s3://nothing/here"}, "no bucket nothing", "aws s3 mb s3://nothing"),
        ({"instance_profile": "other"}, "no instance profile other", "aws iam create-instance-profile"),
        ({"ami": "ami-0123456789abcdef0"}, "no machine image ami-0123", "aws ssm get-parameter"),
        ({"gpus": 1, "gpu": "t4"}, "and 0 GPUs", "gpus = 0"),
        ({"disk_gib": 8}, "needs a disk of 15 GiB", "disk_gib = 15"),
        ({"instance_type": "m6g.large"}, "is for x86_64, m6g.large is arm64", "/arm64/"),
        ({"root_device": "/dev/xvda"}, "is /dev/sda1", 'root_device = "/dev/sda1"'),
        ({"cores": 64}, "m5.large has 2 vCPUs, 8 GiB and 0 GPUs", "cores = 2"),
        ({"subnets": ["subnet-0123"]}, "subnet-0123", "aws ec2 describe-subnets"),
        ({"security_groups": ["sg-0123"]}, "sg-0123", "aws ec2 describe-security-groups"),
        ({"nodes": 2}, "no security group lets itself in", "aws ec2 authorize-security-group-ingress"),
        ({"placement_group": "close"}, "no placement group close", "create-placement-group --group-name close"),
        ({"nodes": 2, "instance_type": "g5.8xlarge"}, "EFA wants a security group", "authorize-security-group-egress"),
        ({"secret": "aws:keys"}, "no secret keys", "aws secretsmanager create-secret --name keys"),
    ]
    for changed, message, hint in table:
        found = refusals(aws_network, **changed)
        assert any(message in said and hint in mends for said, mends in found), (changed, found)


@pytest.mark.usefixtures("ec2")
def test_check_of_the_quota(sagemaker: FakeSageMaker, aws_network: dict[str, str]) -> None:
    """In vCPUs, of the family and the way it is bought."""
    name = "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    sagemaker.quotas[name] = 1.0
    [(said, mends)] = refusals(aws_network)
    assert f"«{name}» is 1, 2 is needed" in said
    assert "request-service-quota-increase --service-code ec2" in mends


@pytest.mark.usefixtures("ec2")
def test_check_of_the_way_out(aws: str, aws_network: dict[str, str]) -> None:
    """A private machine behind an internet gateway, and one that leads nowhere, would wait forever."""
    client = boto3.client("ec2", endpoint_url=aws)
    client.delete_route(RouteTableId=aws_network["table"], DestinationCidrBlock="0.0.0.0/0")
    found = refusals(aws_network)
    assert all("does not lead to the bucket" in said and "create-vpc-endpoint" in mends for said, mends in found)
    assert len(found) == 2  # one for each subnet
    gateway = client.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    client.attach_internet_gateway(InternetGatewayId=gateway, VpcId=aws_network["vpc"])
    client.create_route(RouteTableId=aws_network["table"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    assert all("public_address = true" in mends for _, mends in refusals(aws_network))
    assert refusals(aws_network, public_address=True) == []


def steps(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


@pytest.mark.slow
def test_spot_takes_the_machine_and_the_run_goes_on(ec2: FakeEC2, aws_network: dict[str, str], tmp_path: Path) -> None:
    """The notice saves; the run is lost with EC2's reason; the next submission goes on, with every loss in place."""
    ec2.notice_s = 20.0
    found = cloud(
        **placed(aws_network, python=sys.executable, mount=str(tmp_path / "there"), exchange_s=0.5, grace_s=8)
    )
    trial = PlaceTrial(
        executor=BucketRuns(kind="ec2", name="vm", place=found.place, cloud=found), home=tmp_path / "here"
    )
    folder = trial.write("taken")
    made = trial.start(folder, steps=4000, step_s=0.05, checkpoint_every=5000)
    trial.wait(lambda: trial.status(folder).status is PlaceStatus.RUNNING and len(steps(folder)) > 5)
    ec2.interrupt(made)
    lost = trial.reach(folder, PlaceStatus.LOST)
    assert "Spot instance termination" in lost.message
    at = folder.state().checkpoint_step
    assert at is not None
    assert at > 5  # saved by the notice: its own turn never comes
    trial.start(folder, 2, steps=at + 10, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert steps(folder) == {step: 1 / step for step in range(1, at + 11)}
    assert folder.state().lost_steps == 0
    trial.executor.teardown(folder)
    assert ec2.templates == {}


@pytest.mark.usefixtures("ec2")
def test_check_of_the_zones(aws: str, aws_network: dict[str, str]) -> None:
    """A zone without the type is doubted where another subnet has it, and refused where none has."""
    client = boto3.client("ec2", endpoint_url=aws)
    body = {"VpcId": aws_network["vpc"], "AvailabilityZone": "us-east-1e"}
    far = client.create_subnet(**body, CidrBlock="10.0.9.0/24")["Subnet"]["SubnetId"]
    zones = "subnets of us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1f"
    assert (f"no m5.large in the zone of {far} (us-east-1e)", zones) in refusals(aws_network, subnets=[far])
    found = cloud(**placed(aws_network, subnets=[far, aws_network["subnet"]]))
    doubts = [one.message for one in found.questions() if one.kind == "doubtful"]
    assert doubts == [f"no m5.large in the zone of {far} (us-east-1e)"]
