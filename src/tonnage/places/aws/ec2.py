"""EC2 instances for each submission, by a fleet of the type `instant`, that end themselves with their work.

A run has one or several; of several all are started, or none.

Sources: botocore's model of the service; AWS, «EC2 Fleet: instant», «Ensuring idempotency», «Spot Instance
interruption notices», «Instance initiated shutdown behavior».
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.aws_shapes import check_request
from tonnage.places.aws.calls import AwsError, AWSJobs
from tonnage.places.aws.ec2_checks import questions_of
from tonnage.places.aws.place import EC2Place
from tonnage.places.bucket.boot import first_script, last_words
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.several import JOINT, joint_view
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

SERVICE: Final = "ec2"
TEMPLATE: Final = "CreateLaunchTemplate"
FLEET: Final = "CreateFleet"
MOST_USER_DATA: Final = 16 * 1024  # bytes, before base64
SEEN_S: Final = 60.0  # EC2 shows what it has made seconds after it has said so
PAUSE_S: Final = 2.0
LIVE: Final = ("pending", "running", "stopping", "stopped")
PHASES: Final[Mapping[str, Phase]] = {
    "pending": Phase.PROVISIONING, "running": Phase.RUNNING, "shutting-down": Phase.ENDING,
    "stopping": Phase.ENDING, "stopped": Phase.ENDED, "terminated": Phase.ENDED,
}  # fmt: skip
BY_A_USER: Final = "Client.UserInitiatedShutdown"
BY_ITSELF: Final = "Client.InstanceInitiatedShutdown"
NO_CAPACITY: Final = frozenset({"InsufficientInstanceCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow",
                                "InsufficientCapacity", "Unsupported"})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EC2(AWSJobs):
    """One place of the kind `ec2`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when EC2 looks for it"),
        DeclaredGap(
            verb="preemption", whole=True,
            reason="EC2 starts nothing again when spot takes an instance: `resume` does, or `--on any`",
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ("aws",)
    place: EC2Place
    sleep: Callable[[float], None] = time.sleep

    def requests(self, work: Work) -> tuple[Request, ...]:
        """A launch template, which EC2 asks of a fleet, and the fleet of all machines."""
        bodies = {TEMPLATE: launch_template(self.place, work), FLEET: fleet(self.place, work)}
        made = {name: merged(body, self.place.patch.get(name, {})) for name, body in bodies.items()}
        for name, body in made.items():
            check_request(SERVICE, name, body)
        return tuple(Request(service=SERVICE, operation=name, body=body) for name, body in made.items())

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The instances' ids. The fleet's client token is the submission's: sent again, it starts no second one."""
        template, asked = requests
        try:
            self.account.call(SERVICE, TEMPLATE, encoded(template.body))
        except AwsError as error:
            if error.code != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise
        try:
            answer = self.account.call(SERVICE, FLEET, asked.body)
        finally:
            self._remove_templates(token)  # it was only for the fleet: what runs does not need it
        made = [one for part in answer.get("Instances") or () for one in part["InstanceIds"]]
        if len(made) < self.place.nodes:
            if made:  # a capacity block gives what it has: too few machines are none
                self.account.call(SERVICE, "TerminateInstances", {"InstanceIds": made})
            raise _nothing_started(answer.get("Errors") or [], self.name, has=len(made), of=self.place.nodes)
        self._wait_until_seen(made)
        return JOINT.join(sorted(made))

    def _wait_until_seen(self, instances: Sequence[str]) -> None:
        until = time.monotonic() + SEEN_S
        while len(self._described(instances)) < len(instances) and time.monotonic() < until:
            self.sleep(PAUSE_S)

    def _remove_templates(self, token: str) -> None:
        wanted = {"Filters": [{"Name": "tag:tonnage-token", "Values": [token]}]}
        for one in self.account.call(SERVICE, "DescribeLaunchTemplates", wanted)["LaunchTemplates"]:
            try:
                self.account.call(SERVICE, "DeleteLaunchTemplate", {"LaunchTemplateId": one["LaunchTemplateId"]})
            except AwsError as error:
                if error.code != "InvalidLaunchTemplateId.NotFound":  # another client was faster
                    raise

    def find(self, token: str) -> str | None:
        """Those that were made for a submission, also where they have ended."""
        found = sorted(str(one["InstanceId"]) for one in self._listed({"tag:tonnage-token": [token]}))
        return JOINT.join(found) or None

    def view(self, job_id: str) -> JobView:
        instances = job_id.split(JOINT)
        found = {str(one["InstanceId"]): one for one in self._described(instances)}
        view = joint_view([view_of(found[one]) if one in found else JobView(phase=Phase.GONE, job_id=one)
                           for one in instances])  # fmt: skip
        codes = {(one.get("StateReason") or {}).get("Code") for one in found.values()}
        if view.phase is Phase.ENDED and codes == {BY_ITSELF}:
            last = next(filter(None, (last_words(self._console(one)) for one in instances)), "")
            return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=last or view.reason)
        return view

    def end(self, job_id: str, token: str) -> None:
        """Ended with their disks; systemd on them passes SIGTERM on first. Those that EC2 no longer lists are gone."""
        left = sorted(str(one["InstanceId"]) for one in self._described(job_id.split(JOINT)))
        try:
            if left:
                self.account.call(SERVICE, "TerminateInstances", {"InstanceIds": left})
        except AwsError as error:
            if not error.code.startswith("InvalidInstanceID"):  # gone since
                raise
        self._remove_templates(token)

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        wanted = {"tag:tonnage-home": [home], "instance-state-name": list(LIVE)}
        jobs: dict[str, list[dict[str, Any]]] = {}
        for one in self._listed(wanted):
            jobs.setdefault(_tags(one).get("tonnage", ""), []).append(one)
        return [
            TaggedCloudJob(
                job_id=JOINT.join(sorted(str(one["InstanceId"]) for one in some)), tag=tag,
                view=joint_view([view_of(one) for one in some]),
            ) for tag, some in jobs.items()
        ]  # fmt: skip

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.account, self.place)

    def _described(self, instances: Sequence[str]) -> list[dict[str, Any]]:
        """By a filter: what is not there, or not yet, is left out and no error."""
        return list(self._listed({"instance-id": list(instances)}))

    def _listed(self, filters: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
        asked = [{"Name": name, "Values": values} for name, values in filters.items()]
        token: str | None = None
        while True:
            more = {"NextToken": token} if token else {}
            answer = self.account.call(SERVICE, "DescribeInstances", {"Filters": asked, "MaxResults": 1000} | more)
            for group in answer["Reservations"]:
                yield from group["Instances"]
            token = answer.get("NextToken")
            if not token:
                return

    def _console(self, instance: str) -> str:
        """What the machine wrote to its console; empty where EC2 does not have it (yet)."""
        try:
            answer = self.account.call(SERVICE, "GetConsoleOutput", {"InstanceId": instance})
        except AwsError:
            return ""
        return str(answer.get("Output") or "")  # boto3 has decoded it


def launch_template(place: EC2Place, work: Work) -> Body:
    """The machine. Nothing reaches it, its disk is encrypted and goes with it, secrets are named alone.

    InputError where its first script is longer than EC2 takes.
    """
    script = first_script(place, work, login=login(place.image))
    if len(script.encode()) > MOST_USER_DATA:
        raise InputError(f"the machine's first script has {len(script.encode())} bytes, EC2 takes {MOST_USER_DATA}",
                         hint="move lines of `setup` into the image")  # fmt: skip
    tags = [{"Key": key, "Value": value} for key, value in {"Name": work.name, **work.tags}.items()]
    disk: Body = {"VolumeSize": place.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    if place.kms_key is not None:
        disk["KmsKeyId"] = place.kms_key
    profile = "Arn" if place.instance_profile.startswith("arn:") else "Name"
    data: Body = {
        "ImageId": place.ami, "InstanceType": place.instance_type,
        "IamInstanceProfile": {profile: place.instance_profile},
        "UserData": script,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [{"DeviceName": place.root_device, "Ebs": disk}],
        "NetworkInterfaces": interfaces(place),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }  # fmt: skip
    if place.placement_group is not None:
        data["Placement"] = {"GroupName": place.placement_group}
    if place.reservation is not None:
        target = {"CapacityReservationId": place.reservation}
        data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    if place.capacity_block:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    return {
        "LaunchTemplateName": work.name, "LaunchTemplateData": data,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
    }  # fmt: skip


def interfaces(place: EC2Place) -> list[Body]:
    """The first is an ordinary one; beside it each card has one for EFA alone.

    AWS, «Maximize network bandwidth on EC2 instances with multiple network cards»: EFA-only at device 1 of card 0 and
    at device 0 of the others. EC2 takes `AssociatePublicIpAddress` of a machine with one interface alone.
    """
    shared: Body = {"DeleteOnTermination": True, "Groups": list(place.security_groups)}
    if not place.efa_cards:
        return [{"DeviceIndex": 0, "AssociatePublicIpAddress": place.public_address, **shared}]
    first: Body = {"NetworkCardIndex": 0, "DeviceIndex": 0, **shared}
    cards = (
        {"NetworkCardIndex": card, "DeviceIndex": int(card == 0), "InterfaceType": "efa-only", **shared}
        for card in range(place.efa_cards)
    )
    return [first, *cards]


def login(image: str) -> tuple[str, ...]:
    """The line that signs a machine in at Amazon's registry, where the image is there; its role is enough."""
    host = image.partition("/")[0]
    if ".dkr.ecr." not in host:
        return ()
    region = host.split(".")[3]
    return (f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}",)


def encoded(body: Body) -> Body:
    """The template as EC2 takes it: its user data in base64. Shown and kept it is the text that people read."""
    data = body["LaunchTemplateData"]
    return {
        **body, "LaunchTemplateData": {**data, "UserData": base64.b64encode(data["UserData"].encode()).decode()},
    }  # fmt: skip


def fleet(place: EC2Place, work: Work) -> Body:
    """All instances, in whichever of the subnets has them, now or not at all."""
    market = "capacity-block" if place.capacity_block else "spot" if place.spot else "on-demand"
    together: Body = {} if place.nodes == 1 else {
        "SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": place.nodes,
    }  # fmt: skip
    body: Body = {
        "Type": "instant", "ClientToken": work.token,
        "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateName": work.name, "Version": "$Latest"},
            "Overrides": [{"SubnetId": one} for one in place.subnets],
        }],
        "TargetCapacitySpecification": {"TotalTargetCapacity": place.nodes, "DefaultTargetCapacityType": market},
        "TagSpecifications": [
            {"ResourceType": "fleet", "Tags": [{"Key": key, "Value": value} for key, value in work.tags.items()]}
        ],
    }  # fmt: skip
    if place.spot:
        most = place.most_usd_per_hour
        price = {} if most is None else {"MaxTotalPrice": f"{most * place.nodes:g}"}
        body["SpotOptions"] = {
            "AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate", **price,
            **together,
        }  # fmt: skip
    elif together and not place.capacity_block:
        body["OnDemandOptions"] = together
    return body


def view_of(instance: Mapping[str, Any]) -> JobView:
    """An instance as DescribeInstances tells of it.

    >>> view_of({"InstanceId": "i-1", "State": {"Name": "running"}}).phase
    <Phase.RUNNING: 'running'>
    """
    word, why = str(instance["State"]["Name"]), instance.get("StateReason") or {}
    phase = PHASES.get(word, Phase.PROVISIONING)
    if phase is Phase.ENDED and why.get("Code") == BY_A_USER:
        phase = Phase.CANCELLED
    return JobView(phase=phase, job_id=str(instance["InstanceId"]), word=word, reason=str(why.get("Message") or ""))


def _nothing_started(errors: list[dict[str, Any]], name: str, *, has: int, of: int) -> TonnageError:
    reasons: dict[str, str] = {}
    for one in errors:
        overrides = (one.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
        where = overrides.get("SubnetId") or overrides.get("AvailabilityZone") or "anywhere"
        reasons[where] = f"{one.get('ErrorCode')}: {one.get('ErrorMessage')}"
    words = "; ".join(f"{where}: {why}" for where, why in reasons.items()) or "no reason was given"
    codes = {str(one.get("ErrorCode")) for one in errors}
    capacity = bool(codes) and codes <= NO_CAPACITY
    hint = (
        "subnets of more zones, another type or region, `spot = false`, or `--on any`"
        if capacity
        else f"`tonnage places check {name}`"
    )
    few = f"EC2 had {has} of {of} instances, which are ended" if has else "EC2 started no instance"
    return TonnageError(f"{few}: {words}", hint=hint)


def _tags(resource: Mapping[str, Any]) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in resource.get("Tags") or ()}
