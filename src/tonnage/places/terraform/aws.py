"""What EC2 instances and SageMaker jobs need: private network, closed bucket, the machine's role, the user's rights.

Sources: the provider hashicorp/aws 5; AWS, «Gateway endpoints for Amazon S3», «Amazon ECR interface VPC endpoints»
(layers lie in a bucket of the region), «SageMaker roles» and «Actions, resources, and condition keys».
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.places.aws.place import EC2Place, SageMakerPlace
from tonnage.places.bucket.secrets import secret_of
from tonnage.places.terraform.hcl import Block, Expression, HCLText

PROVIDER: Final = "~> 5.80"
NETWORK: Final = "10.80.0.0/16"
ANYWHERE: Final = "0.0.0.0/0"
ECR: Final = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<repository>[^@]+)@.*"
)
SECRET_SERVICES: Final = {"aws": "secretsmanager", "aws-ssm": "ssm"}  # of a reference's scheme
KEPT_DAYS: Final = 90  # inputs that no run has sent again
EC2_READS: Final = (
    "ec2:DescribeImages", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates", "ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets",
)  # fmt: skip
EC2_MAKES: Final = (
    "ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateTags", "ec2:DeleteLaunchTemplate", "ec2:RunInstances",
)  # fmt: skip
SAGEMAKER: Final = (
    "sagemaker:AddTags", "sagemaker:CreateTrainingJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob",
    "sagemaker:UpdateTrainingJob",
)  # fmt: skip
SAGEMAKER_CARDS: Final = (
    "ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission", "ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
)  # fmt: skip
AWSPlace = EC2Place | SageMakerPlace


def aws_blocks(name: str, place: AWSPlace, *, nat: bool) -> list[Block]:
    """All blocks of a place, in their order; `nat`: its machines reach the internet.

    InputError where its role is of another kind than can be made here.
    """
    has_network = isinstance(place, EC2Place) or bool(place.subnets)
    return [
        *_provider(name, place), *_bucket(place), *(_network(place, nat=nat) if has_network else ()), *_role(place),
        *_rights(place), *_outputs(place, has_network=has_network),
    ]  # fmt: skip


def _provider(name: str, place: AWSPlace) -> Iterator[Block]:
    source = {"source": "hashicorp/aws", "version": PROVIDER}
    yield Block("terraform", required_version=">= 1.5", inside=[Block("required_providers", aws=source)])
    profile = {} if place.profile is None else {"profile": place.profile}
    tags = {"tonnage-place": name, **place.labels}
    yield Block("provider", "aws", region=place.region, **profile, inside=[Block("default_tags", tags=tags)])
    yield Block("data", "aws_caller_identity", "here")
    yield Block("data", "aws_partition", "here")


def _bucket(place: AWSPlace) -> Iterator[Block]:
    """Encrypted, owned, reached by TLS alone, and by nobody outside."""
    bucket, prefix = _bucket_of(place)
    its = Expression("aws_s3_bucket.runs.id")
    yield Block("resource", "aws_s3_bucket", "runs", bucket=bucket)
    yield Block(
        "resource", "aws_s3_bucket_public_access_block", "runs", bucket=its, block_public_acls=True,
        block_public_policy=True, ignore_public_acls=True, restrict_public_buckets=True,
    )  # fmt: skip
    owner = Block("rule", object_ownership="BucketOwnerEnforced")
    yield Block("resource", "aws_s3_bucket_ownership_controls", "runs", bucket=its, inside=[owner])
    default = Block("apply_server_side_encryption_by_default", sse_algorithm="AES256")
    yield Block(
        "resource", "aws_s3_bucket_server_side_encryption_configuration", "runs", bucket=its,
        inside=[Block("rule", inside=[default])],
    )  # fmt: skip
    inputs, whole = f"{prefix}objects/", Block("filter", prefix="")
    yield Block(
        "resource", "aws_s3_bucket_lifecycle_configuration", "runs", bucket=its,
        inside=[
            Block("rule", id="inputs", status="Enabled",
                  inside=[Block("filter", prefix=inputs), Block("expiration", days=KEPT_DAYS)]),
            Block("rule", id="cut-uploads", status="Enabled",
                  inside=[whole, Block("abort_incomplete_multipart_upload", days_after_initiation=7)]),
        ],
    )  # fmt: skip
    arn = Expression("aws_s3_bucket.runs.arn")
    refused = {
        "Sid": "TLSAlone", "Effect": "Deny", "Principal": "*", "Action": "s3:*",
        "Resource": [arn, "${aws_s3_bucket.runs.arn}/*"], "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }  # fmt: skip
    yield Block("resource", "aws_s3_bucket_policy", "runs", bucket=its, policy=_policy(refused))


def _network(place: AWSPlace, *, nat: bool) -> Iterator[Block]:
    """Private subnets in every zone that has the type; S3 by a gateway, the registry by endpoints, or all by NAT."""
    yield Block("resource", "aws_vpc", "runs", cidr_block=NETWORK, enable_dns_support=True, enable_dns_hostnames=True,
                tags={"Name": "tonnage"})  # fmt: skip
    kind = place.instance_type.removeprefix("ml.")
    chosen = Block("filter", name="instance-type", values=[kind])
    yield Block("data", "aws_ec2_instance_type_offerings", "zones", location_type="availability-zone", inside=[chosen])
    zones = "sort(data.aws_ec2_instance_type_offerings.zones.locations)"
    yield Block("locals", zones=Expression(zones))
    vpc = Expression("aws_vpc.runs.id")
    yield Block(
        "resource", "aws_subnet", "runs", for_each=Expression("toset(local.zones)"), vpc_id=vpc,
        availability_zone=Expression("each.value"), map_public_ip_on_launch=False,
        cidr_block=Expression("cidrsubnet(aws_vpc.runs.cidr_block, 4, index(local.zones, each.value))"),
    )  # fmt: skip
    yield Block("resource", "aws_route_table", "runs", vpc_id=vpc)
    yield Block(
        "resource", "aws_route_table_association", "runs", for_each=Expression("aws_subnet.runs"),
        subnet_id=Expression("each.value.id"), route_table_id=Expression("aws_route_table.runs.id"),
    )  # fmt: skip
    yield Block(
        "resource", "aws_security_group", "runs", name="tonnage-runs", vpc_id=vpc,
        description="Machines of runs: nothing comes in, TLS and names go out",
    )  # fmt: skip
    yield Block(
        "resource", "aws_vpc_security_group_egress_rule", "tls",
        security_group_id=Expression("aws_security_group.runs.id"), cidr_ipv4=ANYWHERE, ip_protocol="tcp",
        from_port=443, to_port=443,
    )  # fmt: skip
    yield from _endpoints(place)
    yield from _nat() if nat or ECR.fullmatch(place.image) is None else _services(place)


def _endpoints(place: AWSPlace) -> Iterator[Block]:
    service, vpc = f"com.amazonaws.{place.region}", Expression("aws_vpc.runs.id")
    layers = "arn:${data.aws_partition.here.partition}:s3:::prod-" + place.region + "-starport-layer-bucket/*"
    allowed: list[dict[str, Any]] = [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:*",
         "Resource": [Expression("aws_s3_bucket.runs.arn"), "${aws_s3_bucket.runs.arn}/*"]},
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": layers},
    ]  # fmt: skip
    yield Block(
        "resource", "aws_vpc_endpoint", "s3", vpc_id=vpc, service_name=f"{service}.s3", vpc_endpoint_type="Gateway",
        route_table_ids=[Expression("aws_route_table.runs.id")], policy=_policy(*allowed),
    )  # fmt: skip


def _services(place: AWSPlace) -> Iterator[Block]:
    """The registry and the secret, without a way to anything else."""
    service, vpc = f"com.amazonaws.{place.region}", Expression("aws_vpc.runs.id")
    yield Block("resource", "aws_security_group", "endpoints", name="tonnage-endpoints", vpc_id=vpc,
                description="Endpoints of AWS: TLS from the machines of runs")  # fmt: skip
    yield Block(
        "resource", "aws_vpc_security_group_ingress_rule", "endpoints", ip_protocol="tcp", from_port=443, to_port=443,
        security_group_id=Expression("aws_security_group.endpoints.id"),
        referenced_security_group_id=Expression("aws_security_group.runs.id"),
    )  # fmt: skip
    asked = secret_of(place.secret)
    names = ["ecr.api", "ecr.dkr", *([] if asked is None else [SECRET_SERVICES[asked.scheme]])]
    yield Block(
        "resource", "aws_vpc_endpoint", "services", for_each=Expression(f"toset({_listed(names)})"), vpc_id=vpc,
        service_name=f"{service}.${{each.value}}", vpc_endpoint_type="Interface", private_dns_enabled=True,
        subnet_ids=Expression("[for one in aws_subnet.runs : one.id]"),
        security_group_ids=[Expression("aws_security_group.endpoints.id")],
    )  # fmt: skip


def _nat() -> Iterator[Block]:
    """One gateway for all zones, in a subnet of its own."""
    vpc = Expression("aws_vpc.runs.id")
    yield Block("resource", "aws_internet_gateway", "out", vpc_id=vpc)
    yield Block("resource", "aws_subnet", "out", vpc_id=vpc, map_public_ip_on_launch=False,
                availability_zone=Expression("local.zones[0]"),
                cidr_block=Expression("cidrsubnet(aws_vpc.runs.cidr_block, 8, 255)"))  # fmt: skip
    yield Block("resource", "aws_route_table", "out", vpc_id=vpc)
    yield Block("resource", "aws_route", "out", route_table_id=Expression("aws_route_table.out.id"),
                destination_cidr_block=ANYWHERE, gateway_id=Expression("aws_internet_gateway.out.id"))  # fmt: skip
    yield Block("resource", "aws_route_table_association", "out", subnet_id=Expression("aws_subnet.out.id"),
                route_table_id=Expression("aws_route_table.out.id"))  # fmt: skip
    yield Block("resource", "aws_eip", "out", domain="vpc")
    yield Block("resource", "aws_nat_gateway", "out", subnet_id=Expression("aws_subnet.out.id"),
                allocation_id=Expression("aws_eip.out.id"))  # fmt: skip
    yield Block("resource", "aws_route", "runs", route_table_id=Expression("aws_route_table.runs.id"),
                destination_cidr_block=ANYWHERE, nat_gateway_id=Expression("aws_nat_gateway.out.id"))  # fmt: skip


def _role(place: AWSPlace) -> Iterator[Block]:
    """What the machine may: its part of the bucket, its image, its secret."""
    service = "ec2" if isinstance(place, EC2Place) else "sagemaker"
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": f"{service}.amazonaws.com"}}
    yield Block("resource", "aws_iam_role", "run", name=role_name(place), assume_role_policy=_policy(trust))
    given = [*_objects(place), *_image(place), *_secret(place)]
    if isinstance(place, SageMakerPlace):
        given += _sagemaker_role(place)
    yield Block("resource", "aws_iam_role_policy", "run", name="run", role=Expression("aws_iam_role.run.id"),
                policy=_policy(*given))  # fmt: skip
    if isinstance(place, EC2Place):
        yield Block("resource", "aws_iam_instance_profile", "run", name=role_name(place),
                    role=Expression("aws_iam_role.run.name"))  # fmt: skip


def _objects(place: AWSPlace) -> list[dict[str, Any]]:
    _, prefix = _bucket_of(place)
    listed: dict[str, Any] = _allow(["s3:ListBucket"], Expression("aws_s3_bucket.runs.arn"))
    if prefix:
        listed["Condition"] = {"StringLike": {"s3:prefix": f"{prefix}*"}}
    of_objects = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    return [_allow(of_objects, "${aws_s3_bucket.runs.arn}/" + prefix + "*"), listed]


def _image(place: AWSPlace) -> list[dict[str, Any]]:
    found = ECR.fullmatch(place.image)
    if found is None:
        return []
    arn = f"ecr:{found['region']}:{found['account']}:repository/{found['repository']}"
    pulls = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return [_allow(["ecr:GetAuthorizationToken"], "*"),
            _allow(pulls, "arn:${data.aws_partition.here.partition}:" + arn)]  # fmt: skip


def _secret(place: AWSPlace, *, looked_for: bool = False) -> list[dict[str, Any]]:
    """To read the place's secret; `looked_for`: to see that it is there, without its value."""
    asked = secret_of(place.secret)
    if asked is None:
        return []
    if asked.scheme == "aws-ssm" and looked_for:
        return [_allow(["ssm:DescribeParameters"], "*")]  # which takes no narrower resource
    service = SECRET_SERVICES[asked.scheme]
    actions = {"secretsmanager": ("GetSecretValue", "DescribeSecret"), "ssm": ("GetParameter", "")}[service]
    action = f"{service}:{actions[looked_for]}"
    if asked.name.startswith("arn:"):
        return [_allow([action], asked.name)]
    name = f"secret:{asked.name}-??????" if service == "secretsmanager" else f"parameter/{asked.name.removeprefix('/')}"
    here = "${data.aws_partition.here.partition}:" + f"{service}:{place.region}"
    return [_allow([action], f"arn:{here}:${{data.aws_caller_identity.here.account_id}}:{name}")]


def _sagemaker_role(place: SageMakerPlace) -> list[dict[str, Any]]:
    logs = "arn:${data.aws_partition.here.partition}:logs:" + place.region
    group = f"{logs}:${{data.aws_caller_identity.here.account_id}}:log-group:/aws/sagemaker/*"
    metrics = _allow(["cloudwatch:PutMetricData"], "*")
    metrics["Condition"] = {"StringLike": {"cloudwatch:namespace": "*SageMaker*"}}
    writes = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    cards = [_allow(list(SAGEMAKER_CARDS), "*")] if place.subnets else []
    return [_allow(writes, group), metrics, *cards]


def _rights(place: AWSPlace) -> Iterator[Block]:
    """What whoever starts runs may: a policy for people, that is attached to nobody here."""
    service = "ec2" if isinstance(place, EC2Place) else "sagemaker"
    passed = _allow(["iam:GetRole", "iam:PassRole"], Expression("aws_iam_role.run.arn"))
    passed["Condition"] = {"StringEqualsIfExists": {"iam:PassedToService": f"{service}.amazonaws.com"}}
    quotas = _allow(["servicequotas:ListServiceQuotas", "sts:GetCallerIdentity"], "*")
    given = [passed, quotas, *_objects(place), *_secret(place, looked_for=True)]
    given += [{**one, "Action": ["ecr:DescribeImages"]} for one in _image(place)[1:]]
    given += _ec2_rights(place) if isinstance(place, EC2Place) else _sagemaker_rights(place)
    yield Block("resource", "aws_iam_policy", "client", name=f"{role_name(place)}-client", policy=_policy(*given))


def _ec2_rights(place: EC2Place) -> list[dict[str, Any]]:
    """Machines are made in the region alone; what is ended bears our tag."""
    makes = _allow(list(EC2_MAKES), "*")
    makes["Condition"] = {"StringEquals": {"aws:RequestedRegion": place.region}}
    ends = _allow(["ec2:GetConsoleOutput", "ec2:TerminateInstances"], "*")
    ends["Condition"] = {"StringLike": {"aws:ResourceTag/tonnage": "tonnage:*"}}
    profile = _allow(["iam:GetInstanceProfile"], Expression("aws_iam_instance_profile.run.arn"))
    return [_allow(list(EC2_READS), "*"), makes, ends, profile]


def _sagemaker_rights(place: SageMakerPlace) -> list[dict[str, Any]]:
    here = "arn:${data.aws_partition.here.partition}:sagemaker:" + place.region
    jobs = f"{here}:${{data.aws_caller_identity.here.account_id}}:training-job/*"
    return [_allow(list(SAGEMAKER), jobs), _allow(["sagemaker:ListTags", "sagemaker:ListTrainingJobs"], "*")]


def _outputs(place: AWSPlace, *, has_network: bool) -> Iterator[Block]:
    """The lines of places.toml that are known once all of it is there."""
    if has_network:
        yield Block("output", "subnets", value=Expression("[for one in aws_subnet.runs : one.id]"))
        yield Block("output", "security_groups", value=[Expression("aws_security_group.runs.id")])
    if isinstance(place, EC2Place):
        yield Block("output", "instance_profile", value=Expression("aws_iam_instance_profile.run.name"))
    else:
        yield Block("output", "role", value=Expression("aws_iam_role.run.arn"))
    yield Block("output", "client_policy", value=Expression("aws_iam_policy.client.arn"),
                description="attach it to whoever starts runs")  # fmt: skip


def role_name(place: AWSPlace) -> str:
    """The name that places.toml gives the role, or its instance profile.

    InputError where it names one with a path, which nothing here makes.
    """
    arn = place.instance_profile if isinstance(place, EC2Place) else place.role
    path = arn.partition(":instance-profile/")[2] or arn.partition(":role/")[2] or arn
    if "/" in path:
        raise InputError(f"the role {path} has a path: none is made by these files", hint="a name without `/`")
    return path


def _bucket_of(place: AWSPlace) -> tuple[str, str]:
    bucket, _, prefix = place.bucket.removeprefix("s3://").partition("/")
    return bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""


def _allow(actions: list[str], resource: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resource}


def _policy(*statements: dict[str, Any]) -> HCLText:
    return HCLText({"Version": "2012-10-17", "Statement": list(statements)})


def _listed(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
