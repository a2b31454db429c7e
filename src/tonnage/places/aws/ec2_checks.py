"""Obstacles to runs on EC2 instances, asked of the account before a cent is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tonnage.places.aws.calls import AWSAccount, AwsError
from tonnage.places.aws.place import HOW_AMI, EC2Place
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.contract import PlaceFinding

STANDARD: Final = "Standard (A, C, D, H, I, M, R, T, Z)"
FAMILIES: Final = {  # AWS, «EC2 service quotas»: letters of instance types, quota on-demand, quota as spot
    "p4": ("Running On-Demand P instances", "All P4, P3 and P2 Spot Instance Requests"),
    "p3": ("Running On-Demand P instances", "All P4, P3 and P2 Spot Instance Requests"),
    "p2": ("Running On-Demand P instances", "All P4, P3 and P2 Spot Instance Requests"),
    "p": ("Running On-Demand P instances", "All P5 Spot Instance Requests"),
    "g": ("Running On-Demand G and VT instances", "All G and VT Spot Instance Requests"),
    "vt": ("Running On-Demand G and VT instances", "All G and VT Spot Instance Requests"),
    "inf": ("Running On-Demand Inf instances", "All Inf Spot Instance Requests"),
    "trn": ("Running On-Demand Trn instances", "All Trn Spot Instance Requests"),
    "dl": ("Running On-Demand DL instances", "All DL Spot Instance Requests"),
    "f": ("Running On-Demand F instances", "All F Spot Instance Requests"),
    "x": ("Running On-Demand X instances", "All X Spot Instance Requests"),
}  # fmt: skip
ANYWHERE: Final = "0.0.0.0/0"


def questions_of(account: AWSAccount, place: EC2Place) -> Iterator[PlaceFinding]:
    """Credentials first: without them nothing else can be asked."""
    against = list(account.identity())
    yield from against
    if against:
        return
    yield from _profile(account, place)
    kind, missing = instance_type_of(account, place.instance_type, place.region)
    yield from missing
    yield from _machine_image(account, place, kind)
    yield from _size_and_quota(account, place, kind)
    yield from _network(account, place)
    yield from _placement(account, place)
    yield from account.image(place.image)
    yield from account.secret(place.secret)
    yield from _may_start(account, place)


def quota_of(instance_type: str, *, spot: bool) -> str:
    """The quota that counts the vCPUs of an instance type.

    >>> quota_of("p5.48xlarge", spot=True)
    'All P5 Spot Instance Requests'
    >>> quota_of("m7i.large", spot=False)
    'Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances'
    """
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    letters, generation = (found[1], found[2]) if found else ("", "")
    known = FAMILIES.get(letters + generation) or FAMILIES.get(letters)
    if known is not None:
        return known[spot]
    return f"All {STANDARD} Spot Instance Requests" if spot else f"Running On-Demand {STANDARD} instances"


def _profile(account: AWSAccount, place: EC2Place) -> Iterator[PlaceFinding]:
    name = place.instance_profile.rpartition("/")[2]
    try:
        found = account.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
    except AwsError as error:
        if error.code == "NoSuchEntity":
            yield refused(f"there is no instance profile {name}",
                          f"`aws iam create-instance-profile --instance-profile-name {name}`")  # fmt: skip
        else:
            yield unasked(f"the instance profile {name}", error)
        return
    if not found["Roles"]:
        hint = f"`aws iam add-role-to-instance-profile --instance-profile-name {name} --role-name ROLE`"
        yield refused(f"the instance profile {name} has no role", hint)
    for role in found["Roles"]:
        yield from account.role(role["Arn"], "ec2.amazonaws.com")


def _machine_image(account: AWSAccount, place: EC2Place, kind: dict[str, Any]) -> Iterator[PlaceFinding]:
    try:
        found = account.call("ec2", "DescribeImages", {"ImageIds": [place.ami]})["Images"]
    except AwsError as error:
        if not error.code.startswith("InvalidAMIID"):
            yield unasked(f"the machine image {place.ami}", error)
            return
        found = []
    if not found:
        yield refused(f"there is no machine image {place.ami} in {place.region}", f"{HOW_AMI} names one")
        return
    root = found[0].get("RootDeviceName")
    if root and root != place.root_device:
        yield refused(f"the first disk of {place.ami} is {root}", f'places.{account.place}.root_device = "{root}"')
    disks = [one.get("Ebs") or {} for one in found[0].get("BlockDeviceMappings") or () if one.get("DeviceName") == root]
    least = max((int(one.get("VolumeSize") or 0) for one in disks), default=0)
    if least > place.disk_gib:
        yield refused(f"{place.ami} needs a disk of {least} GiB", f"places.{account.place}.disk_gib = {least}")
    yield from _architecture(place, str(found[0].get("Architecture") or ""), kind)
    if place.gpus:
        from tonnage.catalog.cuda import driver_of_image
        from tonnage.places.gpu_software import software_at

        yield from software_at(place, account.place, driver=driver_of_image(str(found[0].get("Name") or "")))


def _architecture(place: EC2Place, of_image: str, kind: dict[str, Any]) -> Iterator[PlaceFinding]:
    """Whether the machine can run what the image holds."""
    known = (kind.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ()
    if of_image and known and of_image not in known:
        yield refused(f"{place.ami} is for {of_image}, {place.instance_type} is {', '.join(known)}",
                      f"an AMI for {known[0]}: {HOW_AMI.replace('x86_64', known[0])}")  # fmt: skip


def instance_type_of(account: AWSAccount, name: str, region: str) -> tuple[dict[str, Any], list[PlaceFinding]]:
    """What EC2 knows of a type, or why that is nothing."""
    try:
        found = account.call("ec2", "DescribeInstanceTypes", {"InstanceTypes": [name]})["InstanceTypes"]
    except AwsError as error:
        if error.code == "InvalidInstanceType":
            hint = f"`aws ec2 describe-instance-type-offerings --region {region}` lists what there is"
            return {}, [refused(f"{region} has no {name}", hint)]
        return {}, [unasked(f"the instance type {name}", error)]
    return (found[0] if found else {}), []


def _size_and_quota(account: AWSAccount, place: EC2Place, kind: dict[str, Any]) -> Iterator[PlaceFinding]:
    if not kind:
        return
    vcpus, memory_gib = int(kind["VCpuInfo"]["DefaultVCpus"]), kind["MemoryInfo"]["SizeInMiB"] / 1024
    gpus = sum(int(one.get("Count") or 0) for one in (kind.get("GpuInfo") or {}).get("Gpus") or ())
    if place.cores > vcpus or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(
            f"{place.instance_type} has {vcpus} vCPUs, {memory_gib:g} GiB and {gpus} GPUs",
            f"places.{account.place}.cores = {vcpus}, memory_gib = {memory_gib:g}, gpus = {gpus}",
        )
    efa = int(((kind.get("NetworkInfo") or {}).get("EfaInfo") or {}).get("MaximumEfaInterfaces") or 0)
    if place.efa_cards > efa:
        yield refused(f"{place.instance_type} takes {efa} EFA interfaces, not {place.efa_cards}",
                      f"places.{account.place}.efa = false")  # fmt: skip
    if place.reservation is None:  # reserved capacity is beside the quotas of what is bought by the hour
        yield from account.quota(
            "ec2", float(vcpus * place.nodes), named=quota_of(place.instance_type, spot=place.spot)
        )


def _network(account: AWSAccount, place: EC2Place) -> Iterator[PlaceFinding]:
    """Whether subnets and groups are there, of one network, and lead out by themselves."""
    try:
        subnets = account.call("ec2", "DescribeSubnets", {"SubnetIds": list(place.subnets)})["Subnets"]
        groups = account.call("ec2", "DescribeSecurityGroups", {"GroupIds": list(place.security_groups)})
    except AwsError as error:
        if error.code.startswith(("InvalidSubnetID", "InvalidGroup")):
            hint = f"`aws ec2 describe-subnets --region {place.region}`, `aws ec2 describe-security-groups`"
            yield refused(error.message, hint)
        else:
            yield unasked("subnets and security groups", error)
        return
    networks = {one["VpcId"] for one in (*subnets, *groups["SecurityGroups"])}
    if len(networks) > 1:
        yield refused(f"subnets and security groups are of several networks: {', '.join(sorted(networks))}",
                      f"places.{account.place}: those of one VPC")  # fmt: skip
    yield from _zones(account, place, subnets)
    yield from _rules(place, groups["SecurityGroups"])
    for subnet in subnets:
        yield from _way_out(account, place, subnet)


def _rules(place: EC2Place, groups: list[dict[str, Any]]) -> Iterator[PlaceFinding]:
    """Nothing comes in from outside; several machines reach each other, which EFA wants in both directions."""
    for group in groups:
        if any(_from_outside(rule, group["GroupId"]) for rule in group.get("IpPermissions") or ()):
            yield PlaceFinding(kind="doubtful", message=f"the security group {group['GroupId']} lets traffic in",
                               hint="one without inbound rules: the client needs no way to the machine")  # fmt: skip
    if place.nodes == 1:
        return
    inside = [one["GroupId"] for one in groups if _allows_itself(one.get("IpPermissions"), one["GroupId"])]
    outside = [one["GroupId"] for one in groups if _allows_itself(one.get("IpPermissionsEgress"), one["GroupId"])]
    named = place.security_groups[0]
    rule = f"--group-id {named} --protocol all --source-group {named}"
    if not inside:
        hint = f"`aws ec2 authorize-security-group-ingress {rule}`"
        yield refused("machines of a run do not reach each other: no security group lets itself in", hint)
    if place.efa_cards and not outside:
        pairs = f"IpProtocol=-1,UserIdGroupPairs=[{{GroupId={named}}}]"
        hint = f"`aws ec2 authorize-security-group-egress --group-id {named} --ip-permissions '{pairs}'`"
        yield refused("EFA wants a security group that lets all out to itself, by its own name", hint)


def _from_outside(rule: dict[str, Any], group: str) -> bool:
    pairs = {one.get("GroupId") for one in rule.get("UserIdGroupPairs") or ()}
    others = any(rule.get(key) for key in ("IpRanges", "Ipv6Ranges", "PrefixListIds"))
    return others or bool(pairs - {group})


def _allows_itself(rules: list[dict[str, Any]] | None, group: str) -> bool:
    """All traffic, to or from the group by name: a rule of addresses is none to EFA."""
    return any(
        str(rule.get("IpProtocol")) == "-1"
        and any(one.get("GroupId") == group for one in rule.get("UserIdGroupPairs") or ())
        for rule in rules or ()
    )


def _placement(account: AWSAccount, place: EC2Place) -> Iterator[PlaceFinding]:
    """Whether machines of a run are close to each other."""
    name = place.placement_group
    if name is None:
        if place.nodes > 1 and not place.capacity_block:
            group = f"tonnage-{account.place}"
            made = _made_group(group, place)
            yield PlaceFinding(kind="doubtful", message="the machines of a run may be far from each other",
                               hint=f'{made}, and places.{account.place}.placement_group = "{group}"')  # fmt: skip
        return
    made = _made_group(name, place)
    try:
        found = account.call("ec2", "DescribePlacementGroups", {"GroupNames": [name]})["PlacementGroups"]
    except AwsError as error:
        if error.code == "InvalidPlacementGroup.Unknown":
            yield refused(f"there is no placement group {name}", made)
        else:
            yield unasked(f"the placement group {name}", error)
        return
    strategy = found[0].get("Strategy") if found else "none"
    if strategy != "cluster":
        yield refused(f"the placement group {name} is of the strategy {strategy}", f"one that is `cluster`: {made}")


def _made_group(name: str, place: EC2Place) -> str:
    return f"`aws ec2 create-placement-group --group-name {name} --strategy cluster --region {place.region}`"


def _zones(account: AWSAccount, place: EC2Place, subnets: list[dict[str, Any]]) -> Iterator[PlaceFinding]:
    """Whether the zones of the subnets have the type at all."""
    body = {"LocationType": "availability-zone",
            "Filters": [{"Name": "instance-type", "Values": [place.instance_type]}]}  # fmt: skip
    try:
        offered = account.call("ec2", "DescribeInstanceTypeOfferings", body)["InstanceTypeOfferings"]
    except AwsError as error:
        yield unasked(f"the zones of {place.instance_type}", error)
        return
    zones = {str(one["Location"]) for one in offered}
    lacking = [
        f"{one['SubnetId']} ({one['AvailabilityZone']})" for one in subnets if one["AvailabilityZone"] not in zones
    ]
    if zones and lacking:
        message, hint = (
            f"no {place.instance_type} in the zone of {', '.join(lacking)}",
            f"subnets of {', '.join(sorted(zones))}",
        )
        if len(lacking) == len(subnets):
            yield refused(message, hint)
        else:
            yield PlaceFinding(kind="doubtful", message=message, hint=hint)


def _way_out(account: AWSAccount, place: EC2Place, subnet: dict[str, Any]) -> Iterator[PlaceFinding]:
    name = subnet["SubnetId"]
    for filters in (
        {"association.subnet-id": name}, {"vpc-id": subnet["VpcId"], "association.main": "true"}
    ):  # fmt: skip
        asked = [{"Name": key, "Values": [value]} for key, value in filters.items()]
        try:
            tables = account.call("ec2", "DescribeRouteTables", {"Filters": asked})["RouteTables"]
        except AwsError as error:
            yield unasked(f"the way out of {name}", error)
            return
        if tables:
            break
    routes = [route for table in tables for route in table["Routes"]]
    out = next((route for route in routes if route.get("DestinationCidrBlock") == ANYWHERE), None)
    endpoint = any(str(route.get("GatewayId", "")).startswith("vpce-") for route in routes)
    if out is not None and str(out.get("GatewayId", "")).startswith("igw-") and not place.public_address:
        yield refused(f"{name} leads out through an internet gateway, which needs public addresses",
                      f"places.{account.place}.public_address = true, or a subnet behind a NAT gateway")  # fmt: skip
    elif out is None and endpoint:
        yield PlaceFinding(kind="doubtful", message=f"{name} leads to S3 and nowhere else",
                           hint="endpoints for the registry and secrets in the VPC, or a NAT gateway")  # fmt: skip
    elif out is None:
        yield refused(f"{name} does not lead to the bucket",
                      f"`aws ec2 create-vpc-endpoint --vpc-id {subnet['VpcId']} --service-name "
                      f"com.amazonaws.{place.region}.s3 --route-table-ids ...`, or a NAT gateway")  # fmt: skip


def _may_start(account: AWSAccount, place: EC2Place) -> Iterator[PlaceFinding]:
    """EC2's own word on a start that it does not make."""
    profile = "Arn" if place.instance_profile.startswith("arn:") else "Name"
    body = {
        "DryRun": True, "MinCount": 1, "MaxCount": 1, "ImageId": place.ami, "InstanceType": place.instance_type,
        "SubnetId": place.subnets[0], "SecurityGroupIds": list(place.security_groups),
        "IamInstanceProfile": {profile: place.instance_profile},
    }  # fmt: skip
    try:
        account.call("ec2", "RunInstances", body)
    except AwsError as error:
        if error.code != "DryRunOperation":
            yield refused(error.message, error.hint or "")
