"""`tonnage migrate`: every kind of place as every other, without a network, the same twice."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api.launching import render_at
from tonnage.errors import InputError, PlanRefused, UnknownName
from tonnage.runs import RunFolder
from tonnage.runs.spec import DataSource, DataSpec, LaunchSpec, RunSpec, dump_spec
from tonnage.settings import current_settings

pytestmark = pytest.mark.heavy
IMAGE = f"sha256:{'0' * 64}"
GPUS: dict[str, Any] = {"gpus": 1, "gpu": "a10g", "gpu_memory_gib": 24, "cores": 8, "memory_gib": 32}
LIMIT = {"time_limit_minutes": 240}
PLACES: dict[str, dict[str, Any]] = {
    "slurm": {**GPUS, **LIMIT, "gpus": 8, "qos": "high"},
    "ssh": {**GPUS, "host": "gpu1.example.com", "folder": "/home/me/tonnage"},
    "kubernetes": {**GPUS, **LIMIT, "context": "train", "namespace": "ml", "image": f"registry.example/t@{IMAGE}",
                   "volume": "runs", "cluster": "eks", "secret": "keys"},
    "sagemaker": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"1.dkr.ecr.us-east-1.amazonaws.com/t@{IMAGE}",
                  "role": "arn:aws:iam::123456789012:role/t", "region": "us-east-1", "instance_type": "ml.g5.2xlarge"},
    "gce": {**GPUS, **LIMIT, "project": "my-project", "region": "us-central1", "zones": ["us-central1-a"],
            "bucket": "gs://runs/t", "image": f"registry.example/t@{IMAGE}", "instance_type": "g2-standard-8",
            "boot_image": "projects/p/global/images/family/f", "service_account": "a@b.c",
            "secret": "gcp:projects/p/secrets/k"},
    "vertex": {**GPUS, **LIMIT, "project": "my-project", "region": "us-central1", "bucket": "gs://runs/t",
               "image": f"registry.example/t@{IMAGE}", "instance_type": "g2-standard-8", "accelerator": "NVIDIA_L4",
               "service_account": "a@b.c"},
    "databricks": {**GPUS, **LIMIT, "cloud": "aws", "region": "us-east-1", "bucket": "/Volumes/a/b/c/d",
                   "runtime": "16.4.x-gpu-ml-scala2.12", "instance_type": "g5.2xlarge",
                   "wheels": ["/Volumes/a/b/c/t.whl"]},
    "skypilot": {**GPUS, **LIMIT, "bucket": "s3://runs/t", "image": f"registry.example/t@{IMAGE}",
                 "candidates": ["aws/us-east-1/g5.2xlarge"]},
}  # fmt: skip
FILE = """
kind: train
model: bert-base-uncased
data: {samples: 67_000, seq_len: {mean: 48, max: 128}, epochs: 3, location: aws/us-east-1, size_gb: 120}
train: {objective: classification, global_batch: 32}
run:
  task: sequence-classification
  weights: hf://google-bert/bert-base-uncased
  data: {train: "s3://corpus/train/*.jsonl", columns: {text: text, label: label}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a place of each kind, and no network."""
    rows = []
    for kind, terms in PLACES.items():
        values = {"kind": kind, **terms}
        rows += [f"[places.{kind}]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())]
    (tmp_path / "places.toml").write_text("".join(rows))
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is asked")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def written(home: Path, **more: Any) -> str:
    """The specification of a run whose rows lie at a cloud."""
    data = DataSpec(train=DataSource(location="s3://corpus/train/rows.csv", format="csv"))
    path = home / "first.json"
    path.write_text(dump_spec(RunSpec(name="first", task="mlp", data=data, **more)))
    return str(path)


def to(place: str, origin: str | None = None, **more: Any) -> tonnage.MigrateOptions:
    return tonnage.MigrateOptions(to=place, origin=origin, **more)


@pytest.mark.parametrize("origin", PLACES)
def test_every_kind_is_rendered_as_every_other(home: Path, origin: str) -> None:
    """What is shown of each side is what `tonnage run --on` would send; the same bytes twice; nothing is written."""
    file, before = written(home), set(home.iterdir())
    folder = RunFolder(home / "runs" / "first")
    for target in PLACES:
        if target == origin:
            continue
        answer = tonnage.migrate(file, to(target, origin, data_gb=10))
        assert answer.fault is None, answer.fault
        assert answer.to_json() == tonnage.migrate(file, to(target, origin, data_gb=10)).to_json()
        document = json.loads(answer.to_json())
        assert (document["from"]["kind"], document["to"]["kind"]) == (origin, target)
        sent = render_at(current_settings(), folder_spec(file), folder, target).submission
        assert sent is not None
        assert (document["to"]["script"], document["to"]["commands"]) == (
            sent.script,
            [list(one) for one in sent.commands],
        )
        assert document["diff"][:2] == [f"--- {origin}", f"+++ {target}"]
        assert ("qos" in {one["name"] for one in document["changes"] if one["dropped"]}) == (origin == "slurm")
        assert str(answer)
    assert set(home.iterdir()) == before


def folder_spec(file: str) -> RunSpec:
    from tonnage.runs.spec import load_spec

    return load_spec(Path(file).read_text(), where=file)


def test_rows_of_another_cloud_are_copied_once_at_its_price(home: Path) -> None:
    """120 GB out of AWS at 0.09 USD; the plan of the other side has the rows there already, and no second egress."""
    (home / "bert.tonnage.yaml").write_text(FILE)
    found = tonnage.migrate("bert.tonnage.yaml", to("gce", "databricks")).found
    [rows, weights] = found.copies
    assert (rows.how, rows.size_gb, rows.usd) == ("copied", 120.0, pytest.approx(10.8))
    assert rows.time_s == pytest.approx(960.0)
    assert (weights.how, weights.usd) == ("fetched", 0.0)
    assert found.before.predicted is not None
    assert found.after.predicted is not None
    assert found.after.predicted.cost_usd.value < 2.0
    assert "s3://corpus/train/*.jsonl becomes gs://runs/t/data/train/*.jsonl" in {one.note for one in found.steps}
    back = tonnage.migrate("bert.tonnage.yaml", to("databricks", "gce")).found
    assert [one.how for one in back.copies] == ["read", "fetched"]  # the rows lie in the region of the machines
    assert back.copy_usd == 0.0


def test_a_price_of_ones_own_counts_in_the_cost_of_the_run(home: Path) -> None:
    """Twice the price of an hour is twice the cost of the machines; the catalog's price counts where none is stated."""
    (home / "bert.tonnage.yaml").write_text(FILE.replace(", location: aws/us-east-1, size_gb: 120", ""))
    terms = (home / "places.toml").read_text()
    costs = []
    for usd in (50.0, 100.0):
        (home / "places.toml").write_text(terms.replace("[places.gce]\n", f"[places.gce]\nusd_per_hour = {usd}\n"))
        predicted = tonnage.migrate("bert.tonnage.yaml", to("gce", "databricks")).found.after.predicted
        assert predicted is not None
        assert "own price" in predicted.line
        costs.append(predicted.cost_usd)
    assert costs[1].value == pytest.approx(2 * costs[0].value, rel=0.02)
    assert costs[0].low < costs[0].value < costs[0].high
    (home / "places.toml").write_text(terms)
    catalog = tonnage.migrate("bert.tonnage.yaml", to("gce", "databricks")).found.after.predicted
    assert catalog is not None
    assert catalog.cost_usd.value < costs[0].value / 10


def test_a_run_keeps_its_checkpoint_and_its_place(home: Path) -> None:
    """Of a run by its name the newest checkpoint is measured; where it is, it need not be said."""
    folder = RunFolder(home / "runs" / "first")
    folder.create(folder_spec(written(home)), prediction="{}\n", submitted={"name": "first", "place": "slurm"})
    (folder.checkpoints / "step-000010").mkdir(parents=True)
    (folder.checkpoints / "step-000010" / "weights").write_bytes(b"x" * 2_000_000)
    found = tonnage.migrate("first", to("sagemaker")).found
    assert found.before.place == "slurm"
    saved = found.copies[-1]
    assert (saved.what, saved.size_gb, saved.size_basis) == ("newest checkpoint", 0.002, "measured")
    assert saved.time_s == pytest.approx(0.016)
    assert "tonnage resume first --on sagemaker" in {line for one in found.steps for line in one.commands}
    answer = tonnage.migrate(written(home), to("sagemaker", "slurm"))
    assert answer.remarks
    assert "tonnage migrate first --to sagemaker" in answer.remarks[0]


def test_processes_follow_the_devices(home: Path) -> None:
    """Eight processes on eight GPUs become one where there is one GPU, and the commands ask for it."""
    file = written(home, launch=LaunchSpec(runner="torchrun", processes=8, device="cuda"))
    found = tonnage.migrate(file, to("ssh", "slurm")).found
    assert ("processes", "8 by torchrun", "1 by local") in {(one.name, one.before, one.after) for one in found.changes}
    assert any("--processes 1 --runner local" in line for one in found.steps for line in one.commands)


def test_what_cannot_go_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A place that cannot carry the run is a fault beside the report; bad input has a message and a hint."""
    data = DataSpec(train=DataSource(location="s3://u:${ROWS_KEY}@corpus/rows.csv", format="csv"))
    (home / "secret.json").write_text(dump_spec(RunSpec(name="secret", task="mlp", data=data)))
    answer = tonnage.migrate("secret.json", to("sagemaker", "gce"))
    assert isinstance(answer.fault, PlanRefused)
    assert "ROWS_KEY" in answer.found.after.refused
    assert answer.found.after.script == ""
    assert "sagemaker cannot carry it" in str(answer)
    with pytest.raises(UnknownName, match="no place"):
        tonnage.migrate(written(home), to("nowhere", "ssh"))
    with pytest.raises(UnknownName, match="no run"):
        tonnage.migrate("nothing", to("ssh"))
    with pytest.raises(InputError, match="already"):
        tonnage.migrate(written(home), to("ssh", "ssh"))
    with pytest.raises(InputError, match="gbit_per_s"):
        to("ssh", gbit_per_s=0)
    from tonnage.cli import run

    assert run(["migrate", "secret.json", "--from", "gce", "--to", "sagemaker"]) == 4
    assert run(["migrate", "secret.json"]) == 2
    assert "--to" in capsys.readouterr().err
