"""`tonnage run FILE --on PLACE --dry-run`, all kinds side by side: the same words, no network, the same bytes twice.

Every kind that places.toml may name is among them: one without a table here fails.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.places.file import KINDS, model_of
from tonnage.planning.plan import MachineOption
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, dump_spec
from tonnage.settings import current_settings

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
IMAGE = f"sha256:{'0' * 64}"
GPUS: dict[str, Any] = {"gpus": 8, "gpu": "h100", "gpu_memory_gib": 80, "cores": 192, "memory_gib": 1800}
P5 = {"machine": "aws/p5.48xlarge", "region": "us-east-1", "purchase": "on_demand"}
LIMIT = {"time_limit_minutes": 240}
PLACES: dict[str, dict[str, Any]] = {
    "slurm": {**GPUS, **P5, **LIMIT},
    "ssh": {**GPUS, **P5, "host": "gpu1.example.com", "folder": "/home/me/tonnage"},
    "kubernetes": {**GPUS, **P5, **LIMIT, "context": "train", "namespace": "ml", "image": f"registry.example/t@{IMAGE}",
                   "volume": "runs", "data_volume": "datasets", "cluster": "eks"},
    "sagemaker": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"1.dkr.ecr.us-east-1.amazonaws.com/t@{IMAGE}",
                  "role": "arn:aws:iam::123456789012:role/t", "region": "us-east-1", "instance_type": "ml.g5.48xlarge"},
    "ec2": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"registry.example/t@{IMAGE}", "region": "us-east-1",
            "instance_type": "p5.48xlarge", "ami": "ami-0123456789abcdef0", "instance_profile": "t", "subnets": ["s-1"],
            "security_groups": ["sg-1"]},
    "aws-batch": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"registry.example/t@{IMAGE}", "queue": "gpus",
                  "region": "us-east-1", "instance_type": "p5.48xlarge", "role": "arn:aws:iam::123456789012:role/t"},
    "gce": {**GPUS, **LIMIT, "project": "my-project", "region": "us-central1", "zones": ["us-central1-a"],
            "bucket": "gs://runs/t", "image": f"registry.example/t@{IMAGE}", "instance_type": "a3-highgpu-8g",
            "boot_image": "projects/p/global/images/family/f", "service_account": "a@b.c"},
    "azure": {**GPUS, **LIMIT, "cores": 96, "subscription": "11111111-2222-3333-4444-555555555555", "region": "eastus",
              "resource_group": "ml", "bucket": "az://runs@account.blob.core.windows.net/t", "subnet": "net/runs",
              "instance_type": "Standard_ND96isr_H100_v5", "image": f"registry.azurecr.io/t@{IMAGE}",
              "boot_image": "canonical:ubuntu:server:latest", "ssh_public_key": "ssh-ed25519 AAAA",
              "identity": "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/identities/i"},
    "azureml": {**GPUS, **LIMIT, "cores": 96, "subscription": "11111111-2222-3333-4444-555555555555", "compute": "gpus",
                "workspace": "team", "region": "eastus", "resource_group": "ml", "image": f"r.azurecr.io/t@{IMAGE}",
                "bucket": "az://runs@account.blob.core.windows.net/t", "instance_type": "Standard_ND96isr_H100_v5",
                "identity": "11111111-2222-3333-4444-555555555555"},
    "digitalocean": {**GPUS, **LIMIT, "cores": 160, "region": "nyc1", "bucket": "s3://runs/t",
                     "image": f"registry.digitalocean.com/a/t@{IMAGE}", "instance_type": "gpu-h100x8-640gb",
                     "boot_image": "gpu-h100x8-base", "ssh_keys": ["289794"]},
    "vertex": {**GPUS, **LIMIT, "project": "my-project", "region": "us-central1", "bucket": "gs://runs/t",
               "image": f"registry.example/t@{IMAGE}", "instance_type": "a2-highgpu-8g",
               "accelerator": "NVIDIA_TESLA_A100", "service_account": "a@b.c"},
    "databricks": {**GPUS, **LIMIT, "cloud": "aws", "region": "us-east-1", "bucket": "/Volumes/a/b/c/d",
                   "runtime": "16.4.x-gpu-ml-scala2.12", "instance_type": "p5.48xlarge",
                   "wheels": ["/Volumes/a/b/c/t.whl"]},
    "ray": {**GPUS, **P5, **LIMIT, "address": "http://head:8265", "bucket": "s3://runs/t"},
    "spark": {**GPUS, **P5, **LIMIT, "address": "spark://head:7077", "bucket": "s3://runs/t"},
    "skypilot": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"registry.example/t@{IMAGE}",
                 "candidates": ["aws/us-east-1/p5.48xlarge", "gcp/us-central1/a3-highgpu-8g"]},
}  # fmt: skip
ALONE = """
import socket
def refuse(*_, **__):
    raise AssertionError("a dry run asks nobody")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""  # as sitecustomize.py


def lay(tmp_path: Path) -> None:
    """A home with a place of each kind, and a run for them."""
    rows = []
    for kind, terms in PLACES.items():
        values = {"kind": kind, **terms}
        rows += [f"[places.{kind}]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())]
    (tmp_path / "places.toml").write_text("".join(rows))
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    for name, location in (("here", str(tmp_path / "rows.csv")), ("there", "/data/rows.csv")):
        data = DataSpec(train=DataSource(location=location, format="csv"))
        (tmp_path / f"{name}.json").write_text(dump_spec(RunSpec(name="first", task="mlp", data=data)))


@pytest.fixture
def desk(tmp_path: Path) -> dict[str, str]:
    """The environment of a command there, without a network."""
    lay(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(ALONE)
    return {
        **os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}", "TONNAGE_HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


def shown(desk: dict[str, str], kind: str, *more: str) -> str:
    file = f"{desk['TONNAGE_HOME']}/{'there' if kind == 'kubernetes' else 'here'}.json"
    words = [sys.executable, "-m", "tonnage", "run", file, "--on", kind, "--dry-run", *more]
    done = subprocess.run(words, env=desk, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_kind_is_among_them() -> None:
    """A new kind of place has its dry run looked at from the first day."""
    assert set(PLACES) == set(KINDS)


@pytest.fixture(scope="module")
def planned() -> list[MachineOption]:
    """Every machine of a plan over all platforms."""
    found = tonnage.plan((ROOT / "examples" / "bert-finetune.tonnage.yaml").read_text(), settings=current_settings())
    return [one for one in found.options if isinstance(one, MachineOption)]


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a name or opens a connection fails."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a dry run asks nobody")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.parametrize("kind", KINDS)
def test_its_cost_is_the_plans(
    kind: str, planned: list[MachineOption], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], nobody: None,
) -> None:  # fmt: skip
    """The hour of the plan's option of these machines, of several the dearest; the same bytes twice, no network."""
    from tonnage.cli import run as run_line

    del nobody
    lay(tmp_path)
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ("run", f"{'there' if kind == 'kubernetes' else 'here'}.json", "--on", kind, "--dry-run", "-o", "json")
    shown = []
    for _ in range(2):
        assert run_line(words) == 0, capsys.readouterr().err
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    machines = model_of(kind).model_validate({"kind": kind, **PLACES[kind]}).possible_machines
    hours = [
        one.usd_per_instance_hour for one in planned for machine in machines
        if (one.platform, one.provider, one.instance_type, one.region, one.purchase, one.count)
        == (machine.platform, machine.provider, machine.instance_type, machine.region, machine.purchase, 1)
    ]  # fmt: skip
    assert len(hours) == len(machines)
    assert json.loads(shown[0])["cost"]["usd_per_hour"] == pytest.approx(max(hours))


TOGETHER = [kind for kind in KINDS if "silent_after_s" in model_of(kind).model_fields]


@pytest.mark.parametrize("kind", TOGETHER)
def test_when_a_machine_counts_as_lost_is_shown(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several machines: as the place says, else 30 s; too short for one exchange to be late is refused."""
    from tonnage.cli import run as run_line

    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ("run", "here.json", "--on", kind, "--dry-run", "-o", "json", "--runner", "torchrun", "--processes", "16")
    terms = {**PLACES[kind], "nodes": 2}
    for given, wanted in (({}, "30"), ({"silent_after_s": 90}, "90")):
        monkeypatch.setitem(PLACES, kind, terms | given)
        lay(tmp_path)
        code = run_line(words)
        shown = capsys.readouterr()
        assert code == 0, shown.err
        script = json.loads(shown.out)["script"]
        packed = re.search(r'"customData": "([A-Za-z0-9+/=]+)"', script)  # Azure's machines get their script so
        text = script if packed is None else base64.b64decode(packed[1]).decode()
        words_of = re.sub(r"\\\\n|[^a-z0-9-]+", " ", text)
        assert f"--machines 2 --silent-s {wanted} " in f"{words_of} ", words_of
    monkeypatch.setitem(PLACES, kind, {**terms, "silent_after_s": 9})
    lay(tmp_path)
    assert run_line(words) == 2
    assert "less than 2 times exchange_s" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_a_dry_run_is_the_same_bytes_twice_and_asks_nobody(desk: dict[str, str], kind: str) -> None:
    """Place, price, prediction and what is sent stand under the same names, whatever the kind."""
    first = shown(desk, kind, "-o", "json")
    assert shown(desk, kind, "-o", "json") == first
    document = json.loads(first)
    assert set(document) == {
        "schema", "folder", "place", "kind", "tag", "cost", "plan", "prediction", "commands", "script", "job", "doubts",
    }  # fmt: skip
    assert (document["place"], document["kind"], document["schema"]) == (kind, kind, "tonnage/submission@1")
    assert document["tag"].startswith("tonnage:")
    cost, lines = document["cost"], document["cost"]["lines"]
    assert cost["usd_per_hour"] == pytest.approx(sum(line["usd_per_hour"] for line in lines))
    assert all(line["source"] for line in lines)
    if kind != "ssh":  # which ends no run by itself
        assert cost["most_usd_a_job"] == pytest.approx(cost["usd_per_hour"] * 4)
    page = shown(desk, kind)
    assert all(word in page for word in ("Would send", "an hour", "Predicted", "Commands", "What they send"))
    assert list(Path(desk["TONNAGE_HOME"]).glob("runs/*")) == []
