"""A home with places, and the command line at it, as a user has them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.forked import run_tonnage

from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, dump_spec
from tonnage.testing import digitalocean as digitalocean_account
from tonnage.testing.aws.batch import FakeBatch, fake_batch
from tonnage.testing.aws.ec2 import FakeEC2, fake_ec2
from tonnage.testing.aws.sagemaker import FakeSageMaker, fake_sagemaker
from tonnage.testing.azure.cloud import FakeAzure, fake_azure
from tonnage.testing.databricks import FakeWorkspace, fake_workspace
from tonnage.testing.digitalocean import FakeDigitalOcean, fake_digitalocean
from tonnage.testing.google.cloud import FakeGoogle, fake_google
from tonnage.testing.skypilot import FakeSkyPilot, fake_skypilot
from tonnage.testing.sshd import SSHServer, ssh_server

ROOT = Path(__file__).parents[2]
LONGEST_S = 60.0


class Desk:
    """A home, its places.toml, and `tonnage` with its workers pretending."""

    def __init__(self, home: Path, places: str, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **os.environ, **(environ or {}), "PYTHONPATH": str(ROOT / "src"), "TONNAGE_HOME": str(home),
            "TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none",
        }  # fmt: skip
        (home / "rows.csv").write_text("a,b\n1,2\n")
        (home / "places.toml").write_text(places)

    def spec(self, name: str, **more: Any) -> str:
        """The file of a run's specification."""
        data = DataSpec(train=DataSource(location=str(self.home / "rows.csv"), format="csv"))
        path = self.home / f"{name}.json"
        path.write_text(dump_spec(RunSpec(name=name, task="mlp", data=data, **more)))
        return str(path)

    def pretend(self, **pretence: Any) -> None:
        """What workers of submissions from now on do (`tonnage.testing.worker.Pretence`)."""
        self.environ["TONNAGE_FAKE"] = json.dumps(pretence)
        file = self.home / "places.toml"
        told = f"env.TONNAGE_FAKE = '{json.dumps(pretence)}'"  # where the environment does not go along
        file.write_text(re.sub(r"^env\.TONNAGE_FAKE = .*$", lambda _: told, file.read_text(), flags=re.MULTILINE))

    def folder(self, name: str) -> RunFolder:
        return RunFolder(self.home / "runs" / name)

    def tonnage(self, *words: str, code: int = 0) -> str:
        """One command; its standard output."""
        done = run_tonnage(words, env=self.environ, timeout_s=600.0)
        assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """One command that goes on by itself."""
        command = [sys.executable, "-m", "tonnage", *words]
        return subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def kill_clients(self, place: str, delays_s: Sequence[float]) -> None:
        """Start runs at a place, kill each client so long afterwards with all below it, and remove what was begun."""
        names = [f"killed-{number}" for number in range(len(delays_s))]
        for name, delay_s in zip(names, delays_s, strict=True):
            client = self.begin("run", self.spec(name), "--on", place, "-d")
            time.sleep(delay_s)
            for one in [*psutil.Process(client.pid).children(recursive=True), psutil.Process(client.pid)]:
                one.send_signal(signal.SIGKILL)
            client.communicate()
        for name in names:
            if self.folder(name).spec_file.exists():
                self.folder(name).path.rename(self.home / f"aside-{name}")

    def wait(self, true: Callable[[], bool], said: str = "") -> None:
        until = time.monotonic() + LONGEST_S
        while not true():
            assert time.monotonic() < until, said or "it did not come so far in time"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def ssh_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    """A real SSH server."""
    with ssh_server(tmp_path_factory.mktemp("sshd-machine")) as found:
        yield found


@pytest.fixture
def box(ssh_machine: SSHServer) -> Callable[..., str]:
    """`places.toml` of that machine, with these terms changed."""

    def terms(there: Path, **changed: Any) -> str:
        values = {
            "kind": "ssh", "host": "127.0.0.1", "port": ssh_machine.port, "key": str(ssh_machine.key),
            "known_hosts": str(ssh_machine.known_hosts), "folder": str(there), "python": sys.executable, "cores": 1,
            "memory_gib": 1, "share": True, "free_gib": 0,
        } | changed  # fmt: skip
        return (
            "[places.box]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            + "env.TONNAGE_FAKE = '{}'\n"
        )

    return terms


@pytest.fixture
def desk_at() -> Callable[..., Desk]:
    return Desk


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Amazon's services as moto answers them."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account with a bucket, a role and an image, and nothing else; its address."""
    import boto3
    import httpx

    httpx.post(f"{moto_url}/moto-api/reset", trust_env=False)
    for name, value in {
        "AWS_ENDPOINT_URL": moto_url, "AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01)  # not seconds
    boto3.client("s3").create_bucket(Bucket="runs")
    trust = {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
                            "Principal": {"Service": ["sagemaker.amazonaws.com", "ec2.amazonaws.com",
                                                     "ecs-tasks.amazonaws.com"]}}]}  # fmt: skip
    boto3.client("iam").create_role(RoleName="tonnage-run", AssumeRolePolicyDocument=json.dumps(trust))
    return moto_url


@pytest.fixture
def aws_network(aws: str) -> dict[str, str]:
    """A network with a way out, a group that nothing gets in by, a machine image and an instance profile."""
    import boto3

    ec2, iam = boto3.client("ec2", endpoint_url=aws), boto3.client("iam")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    zoned = {"VpcId": vpc, "AvailabilityZone": "us-east-1a"}  # moto draws a zone where none is said
    subnet = ec2.create_subnet(**zoned, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    other = ec2.create_subnet(**zoned, CidrBlock="10.0.2.0/24")["Subnet"]["SubnetId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    group = ec2.create_security_group(GroupName="runs", Description="runs", VpcId=vpc)["GroupId"]
    [ami, *_] = ec2.describe_images(Filters=[{"Name": "root-device-name", "Values": ["/dev/sda1"]}])["Images"]
    iam.create_instance_profile(InstanceProfileName="tonnage-run")
    iam.add_role_to_instance_profile(InstanceProfileName="tonnage-run", RoleName="tonnage-run")
    return {"vpc": vpc, "subnet": subnet, "other": other, "group": group, "ami": ami["ImageId"], "table": table}


@pytest.fixture
def ec2(
    tmp_path: Path, aws: str, sagemaker: FakeSageMaker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeEC2]:  # fmt: skip
    """EC2's fleets and instances; what else is asked of EC2 is moto's, quotas are answered beside SageMaker's."""
    sagemaker.quotas["All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"] = 64.0
    with fake_ec2(tmp_path / "machines", rest=aws) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", found.url)
        yield found


@pytest.fixture
def sagemaker(tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSageMaker]:
    """SageMaker's documented life cycle, with the image and the quota of one instance."""
    assert aws
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_sagemaker(tmp_path / "service") as found:
        for service in ("SAGEMAKER", "ECR", "SERVICE_QUOTAS"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", found.url)
        found.images.add(f"sha256:{'0' * 64}")
        found.quotas["ml.g5.2xlarge for spot training job usage"] = 1.0
        yield found


@pytest.fixture
def batch(
    tmp_path: Path, aws: str, sagemaker: FakeSageMaker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeBatch]:  # fmt: skip
    """AWS Batch with a queue of spot instances; quotas and images are answered beside SageMaker's."""
    assert aws
    sagemaker.quotas["All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"] = 64.0
    sagemaker.quotas["Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"] = 64.0
    with fake_batch(tmp_path / "batch") as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", found.url)
        yield found


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorkspace]:
    """A Databricks workspace with a volume, a wheel of ours in it, and nothing else."""
    for name in [name for name in os.environ if name.startswith("DATABRICKS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with fake_workspace(tmp_path / "workspace") as found:
        (found.volumes / "main/ml/runs/tonnage-1.0-py3-none-any.whl").write_bytes(b"wheel")
        monkeypatch.setenv("DATABRICKS_HOST", found.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", found.token)
        yield found


@pytest.fixture(scope="session")
def google_key() -> str:
    """A service account's private key."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def google(tmp_path: Path, google_key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGoogle]:
    """A Google Cloud project with a bucket, a service account, an image and a network, and nothing else."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_google(tmp_path / "google") as found:
        for name, value in found.environ(google_key).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAzure]:
    """An Azure subscription with a container, an identity, an image and a network, and nothing else."""
    pytest.importorskip("azure.identity")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_azure(tmp_path / "azure") as found:
        for name, value in found.environ().items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def digitalocean(tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDigitalOcean]:
    """A DigitalOcean account whose Spaces are moto's S3."""
    assert aws
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    monkeypatch.delenv("DIGITALOCEAN_TOKEN", raising=False)
    with fake_digitalocean(tmp_path / "digitalocean") as found:
        monkeypatch.setenv("DIGITALOCEAN_API_URL", found.url)
        monkeypatch.setenv("DIGITALOCEAN_ACCESS_TOKEN", digitalocean_account.TOKEN)
        yield found


@pytest.fixture
def skypilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSkyPilot]:
    """The command `sky` with managed jobs."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_skypilot(tmp_path / "sky") as found:
        yield found
