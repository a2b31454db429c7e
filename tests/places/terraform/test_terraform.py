"""Terraform files of places: closed to the world, least rights, nothing dangling, and Terraform's own word on them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.places.terraform.reading import references

from tonnage import api
from tonnage.errors import InputError, UnknownName
from tonnage.places.aws.place import EC2Place, SageMakerPlace
from tonnage.places.file import SSHPlace
from tonnage.places.terraform.aws import AWSPlace, aws_blocks
from tonnage.places.terraform.files import terraform_files
from tonnage.places.terraform.hcl import Block, HCLText

DIGEST = f"sha256:{'0' * 64}"
ECR = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/team/tonnage@{DIGEST}"
BOTH: dict[str, Any] = {
    "region": "us-east-1", "bucket": "s3://my-runs/tonnage", "image": ECR, "time_limit_minutes": 60, "cores": 96,
    "memory_gib": 1000,
}  # fmt: skip
EC2: dict[str, Any] = {
    **BOTH, "kind": "ec2", "instance_type": "p5.48xlarge", "ami": "ami-0123456789abcdef0", "subnets": ["to-come"],
    "instance_profile": "tonnage-run", "security_groups": ["to-come"],
}  # fmt: skip
ROLE = "arn:aws:iam::123456789012:role/tonnage-run"
SAGEMAKER: dict[str, Any] = {**BOTH, "kind": "sagemaker", "instance_type": "ml.p4d.24xlarge", "role": ROLE}
NETWORK = {"subnets": ["to-come"], "security_groups": ["to-come"]}
FORMS: list[tuple[dict[str, Any], bool]] = [
    (EC2, False), (EC2 | {"secret": "aws:keys", "profile": "research", "labels": {"team": "ml", "a b": "c"}}, False),
    (EC2 | {"secret": "aws-ssm:/ml/keys"}, False),
    (EC2, True), (EC2 | {"image": f"registry.example/t@{DIGEST}", "bucket": "s3://my-runs"}, False),
    (SAGEMAKER, False), (SAGEMAKER | NETWORK | {"secret": "aws:arn:aws:secretsmanager:us-east-1:1:secret:k-a"}, False),
]  # fmt: skip
ALL = pytest.mark.parametrize(("terms", "nat"), FORMS)
MIRROR = os.environ.get("TONNAGE_TERRAFORM_MIRROR")
WIDE = {  # actions that AWS allows on all resources alone, or whose statement has a condition
    "ecr:GetAuthorizationToken", "cloudwatch:PutMetricData", "servicequotas:ListServiceQuotas", "sts:GetCallerIdentity",
    "sagemaker:ListTrainingJobs", "sagemaker:ListTags",
}  # fmt: skip


def place(terms: dict[str, Any]) -> AWSPlace:
    return EC2Place(**terms) if terms["kind"] == "ec2" else SageMakerPlace(**terms)


def blocks(terms: dict[str, Any], nat: bool) -> dict[str, Block]:
    return {one.address: one for one in aws_blocks("vm", place(terms), nat=nat)}


def statements(found: dict[str, Block], address: str, name: str = "policy") -> list[dict[str, Any]]:
    policy = found[address].attributes[name]
    assert isinstance(policy, HCLText)
    told: list[dict[str, Any]] = policy.value["Statement"]
    return told


@ALL
def test_every_reference_is_to_something_that_is_there(terms: dict[str, Any], nat: bool) -> None:
    """And the same bytes come twice."""
    found = blocks(terms, nat)
    assert set(references(list(found.values()))) <= set(found)
    assert terraform_files("vm", place(terms), nat=nat) == terraform_files("vm", place(terms), nat=nat)


@ALL
def test_the_bucket_is_closed(terms: dict[str, Any], nat: bool) -> None:
    found = blocks(terms, nat)
    assert found["aws_s3_bucket.runs"].attributes["bucket"] == "my-runs"
    block = found["aws_s3_bucket_public_access_block.runs"].attributes
    assert {name for name, value in block.items() if value is True} == {
        "block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"
    }  # fmt: skip
    [tls] = statements(found, "aws_s3_bucket_policy.runs")
    assert (tls["Effect"], tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


@ALL
def test_nothing_comes_in(terms: dict[str, Any], nat: bool) -> None:
    """No address outside, no rule inward but from machines to endpoints; a job without subnets has no network."""
    found = blocks(terms, nat)
    for address, one in found.items():
        if address.startswith("aws_subnet."):
            assert one.attributes["map_public_ip_on_launch"] is False
        if "ingress" in address:
            assert "cidr_ipv4" not in one.attributes
            assert one.attributes["security_group_id"].text == "aws_security_group.endpoints.id"
    assert ("aws_vpc.runs" in found) == ("subnets" in terms)
    out = nat or "registry.example" in terms["image"]
    assert ("aws_nat_gateway.out" in found) == out
    assert ("aws_vpc_endpoint.services" in found) == ("subnets" in terms and not out)


@ALL
def test_rights_are_no_wider_than_they_have_to_be(terms: dict[str, Any], nat: bool) -> None:
    """No action by a pattern; on everything only what AWS gives no narrower, what reads, what a condition narrows."""
    found = blocks(terms, nat)
    given = statements(found, "aws_iam_role_policy.run") + statements(found, "aws_iam_policy.client")
    for one in given:
        assert one["Effect"] == "Allow"
        assert not any("*" in action for action in one["Action"])
        if one["Resource"] == "*" and "Condition" not in one:
            rest = [action for action in one["Action"] if action not in WIDE and ":Describe" not in action]
            assert all(re.fullmatch(r"ec2:(Create|Delete)NetworkInterface(Permission)?", action) for action in rest)
    for statement in given:
        if "s3:PutObject" in statement["Action"]:
            prefix = "tonnage/" if "/tonnage" in terms["bucket"] else ""
            assert statement["Resource"] == "${aws_s3_bucket.runs.arn}/" + prefix + "*"
    [passed] = [one for one in given if "iam:PassRole" in one["Action"]]
    assert passed["Resource"].text == "aws_iam_role.run.arn"
    reads = ("secretsmanager:GetSecretValue", "ssm:GetParameter")
    secrets = [one for one in given if any(action in reads for action in one["Action"])]
    assert bool(secrets) == ("secret" in terms)


def test_the_trusted_service_and_the_names_are_those_of_the_place() -> None:
    for terms, service in ((EC2, "ec2"), (SAGEMAKER, "sagemaker")):
        found = blocks(terms, nat=False)
        [trust] = statements(found, "aws_iam_role.run", "assume_role_policy")
        assert trust["Principal"] == {"Service": f"{service}.amazonaws.com"}
        assert found["aws_iam_role.run"].attributes["name"] == "tonnage-run"
    assert "aws_iam_instance_profile.run" in blocks(EC2, nat=False)
    assert {"subnets", "security_groups", "instance_profile"} <= set(blocks(EC2, nat=False))


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind, a role with a path, files that are there, a place that is not."""
    ssh = SSHPlace(kind="ssh", host="a", folder="/home/a", cores=1, memory_gib=1, env={})
    with pytest.raises(InputError, match="no Terraform files for a place of the kind ssh") as raised:
        terraform_files("box", ssh)
    assert "azure, ec2, gce, sagemaker, vertex" in (raised.value.hint or "")
    with pytest.raises(InputError, match="the role team/run has a path"):
        terraform_files("sm", SageMakerPlace(**SAGEMAKER | {"role": "arn:aws:iam::123456789012:role/team/run"}))
    rows = "".join(f"{key} = {str(value).replace(chr(39), chr(34))}\n" if not isinstance(value, str)
                   else f'{key} = "{value}"\n' for key, value in EC2.items())  # fmt: skip
    (tmp_path / "places.toml").write_text("[places.vm]\n" + rows)
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    written = api.place_terraform("ec2:vm", tmp_path / "tf")
    assert written.found.files == ("main.tf",)
    assert "terraform -chdir" in written.to_json()
    with pytest.raises(InputError, match=r"main\.tf is there already"):
        api.place_terraform("vm", tmp_path / "tf")
    with pytest.raises(UnknownName, match="no place is named 'mv'"):
        api.place_terraform("mv", tmp_path / "other")


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("terraform") and MIRROR),
    reason="install terraform; TONNAGE_TERRAFORM_MIRROR names a folder with the provider hashicorp/aws",
)
@ALL
def test_terraform_finds_them_valid_and_well_laid_out(terms: dict[str, Any], nat: bool, tmp_path: Path) -> None:
    """By the provider's own schema."""
    for file, text in terraform_files("vm", place(terms), nat=nat).items():
        (tmp_path / file).write_text(text)
    config = tmp_path / "terraformrc"
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{MIRROR}" }}\n}}\n')
    env = {**os.environ, "TF_CLI_CONFIG_FILE": str(config)}
    for words in (["fmt", "-check", "-diff"], ["init", "-backend=false"], ["validate"]):
        done = subprocess.run(["terraform", *words, "-no-color"] if words[0] != "fmt" else ["terraform", *words],
                              cwd=tmp_path, env=env, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
