"""An asset bundle of a workload: held to Databricks' own models, the same twice, whole."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import tonnage
from tonnage.errors import InputError
from tonnage.places.databricks import bundle
from tonnage.places.databricks.bundle import ENTRY_POINT, bundle_faults
from tonnage.supervisor import wheel_task

ROOT = Path(__file__).parents[3]
TERMS: dict[str, Any] = {
    "kind": "databricks", "cloud": "aws", "region": "us-east-1", "bucket": "/Volumes/main/ml/runs/t",
    "runtime": "16.4.x-gpu-ml-scala2.12", "instance_type": "g5.2xlarge", "wheels": ["/Volumes/main/ml/runs/t.whl"],
    "gpus": 1, "gpu": "a10g", "gpu_memory_gib": 24, "cores": 8, "memory_gib": 32, "time_limit_minutes": 240,
}  # fmt: skip
FILE = """
kind: train
model: bert-base-uncased
data: {samples: 67_000, seq_len: {mean: 48, max: 128}, epochs: 3}
train: {objective: classification, global_batch: 32}
run:
  task: sequence-classification
  weights: hf://google-bert/bert-base-uncased
  data: {train: "ROWS", columns: {text: text, label: label}}
"""
REGISTERED = FILE + "  tracking: {register_as: MODEL}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(
    home: Path, *, rows: str = "/Volumes/main/ml/rows/*.jsonl", model: str | None = "main.ml.bert", **terms: Any
) -> None:
    text = FILE if model is None else REGISTERED.replace("MODEL", model)
    (home / "bert.tonnage.yaml").write_text(text.replace("ROWS", rows))
    values = {key: value for key, value in (TERMS | terms).items() if value is not None}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    (home / "places.toml").write_text("[places.dbx]\n" + "".join(lines))


def made(**options: Any) -> dict[str, Any]:
    """The documents of the bundle's YAML files."""
    found = tonnage.places_bundle("bert.tonnage.yaml", tonnage.BundleOptions(on="dbx", **options)).checked()
    return {name: yaml.safe_load(text) for name, text in found.files.items() if name.endswith(".yml")}


def test_a_bundle_has_all_that_the_job_needs(home: Path) -> None:
    """What places.toml names is there already and is not made; every reference leads to a resource of the bundle."""
    write(home, rows="https://u:${ROWS_KEY}@example.com/rows.jsonl")
    files = made()
    resources = files["databricks.yml"]["resources"]
    assert set(resources) == {"experiments", "registered_models", "volumes", "secret_scopes", "instance_pools",
                              "cluster_policies", "jobs"}  # fmt: skip
    text = json.dumps(files["databricks.yml"])
    references = re.findall(r"\$\{resources\.(\w+)\.(\w+)\.\w+\}", text)
    assert len(references) >= 5
    assert all(key in resources[kind] for kind, key in references)
    [job] = resources["jobs"].values()
    [task] = job["tasks"]
    assert task["python_wheel_task"]["entry_point"] == ENTRY_POINT
    assert task["python_wheel_task"]["parameters"][-2:] == ["--max-hours", "3.8"]
    cluster = job["job_clusters"][0]["new_cluster"]
    assert "node_type_id" not in cluster  # its machines come from the pool
    assert cluster["spark_env_vars"]["ROWS_KEY"] == "{{secrets/${resources.secret_scopes.bert.name}/ROWS_KEY}}"
    [endpoint] = files["serving/databricks.yml"]["resources"]["model_serving_endpoints"].values()
    assert endpoint["config"]["served_entities"][0]["entity_name"] == "main.ml.bert"

    write(home, model=None, policy="0123", secret="keys")
    found = made()
    assert set(found) == {"databricks.yml"}
    assert set(found["databricks.yml"]["resources"]) == {"experiments", "volumes", "instance_pools", "jobs"}


@pytest.mark.parametrize(
    "terms",
    [
        {"spot": True, "grace_s": 60, "zone": "us-east-1a", "ebs_gib": 200},
        {"instance_profile": "arn:aws:iam::123456789012:instance-profile/t", "run_as": "0123", "profile": "ml"},
        {"cloud": "azure", "region": "eastus", "instance_type": "Standard_NC4as_T4_v3"},
        {"cloud": "gcp", "region": "us-central1", "instance_type": "g2-standard-8", "service_account": "a@b.c"},
        {"wheels": None, "image": f"registry.example/t@sha256:{'0' * 64}"},
        {"packages": ["evaluate==0.4.3"], "init_scripts": ["/Volumes/main/ml/runs/init.sh"]},
    ],
)  # fmt: skip
def test_every_form_is_one_that_databricks_knows(home: Path, terms: dict[str, Any]) -> None:
    """By the dataclasses of databricks-bundles; the same bytes twice."""
    write(home, **terms)
    asked = tonnage.BundleOptions(on="dbx")
    first, second = (tonnage.places_bundle("bert.tonnage.yaml", asked) for _ in range(2))
    assert first.remarks == ()
    assert first.to_json() == second.to_json()
    assert str(first) == str(second)
    attributes = json.dumps(made()["databricks.yml"]["resources"]["jobs"])
    assert "availability" not in attributes  # it is the pool's


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"jobs": {"a": {"name": "a", "timeout": 1}}}, "timeout"),
        ({"jobs": {"a": {"tasks": [{"task_key": "a", "python_wheel_task": {"entry_point": "b"}}]}}}, "package_name"),
        ({"instance_pools": {"a": {"instance_pool_name": "a"}}}, "node_type_id"),
        ({"volumes": {"a": {"catalog_name": "a", "schema_name": "b", "name": "c", "volume_type": "LOCAL"}}}, "LOCAL"),
    ],
)  # fmt: skip
def test_what_databricks_does_not_know_is_a_fault(changed: dict[str, Any], fault: str) -> None:
    """Unknown members, missing ones, values of no enum, at every level."""
    [found] = bundle_faults({"databricks.yml": {"resources": changed}})
    assert fault in found


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"model": "bert"}, "Unity Catalog"),
        ({"bucket": "s3://runs/t", "instance_profile": "arn:aws:iam::123456789012:instance-profile/t"}, "volume"),
        ({"served_on": "GPU_HUGE"}, "GPU_HUGE"),
        ({"rows": "rows.jsonl"}, "does not see"),
    ],
)  # fmt: skip
def test_bad_input_is_said(home: Path, terms: dict[str, Any], message: str) -> None:
    (home / "rows.jsonl").write_text('{"text": "a", "label": "b"}\n')
    served = {"served_on": terms.pop("served_on")} if "served_on" in terms else {}
    write(home, **terms)
    with pytest.raises(InputError, match=message):
        made(**served)


def test_other_kinds_files_and_missing_models_are_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    with pytest.raises(InputError, match="kind local"):
        tonnage.places_bundle("bert.tonnage.yaml", tonnage.BundleOptions(on="local"))
    with pytest.raises(InputError, match=r"spec\.json"):
        tonnage.places_bundle("spec.json", tonnage.BundleOptions(on="dbx"))

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(bundle, "import_module", missing)
    [remark] = tonnage.places_bundle("bert.tonnage.yaml", tonnage.BundleOptions(on="dbx")).remarks
    assert "not held to" in remark


def test_the_command_writes_the_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the workload file beside them; a folder that cannot be made is said."""
    from tonnage.cli import run

    write(home)
    assert run(["places", "bundle", "bert.tonnage.yaml", "--on", "dbx", "--into", "out", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tonnage/bundle@1"
    found = {str(path.relative_to("out")): path.read_text() for path in Path("out").rglob("*") if path.is_file()}
    assert found == document["files"]
    assert found["bert.tonnage.yaml"] == (home / "bert.tonnage.yaml").read_text()
    assert run(["places", "bundle", "bert.tonnage.yaml", "--on", "dbx", "--into", "places.toml/x"]) == 1
    assert "--into another folder" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_task_runs_a_verb_and_keeps_its_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of them; a verb that failed is a task that failed."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, function = next(group[ENTRY_POINT] for group in groups.values() if ENTRY_POINT in group).partition(":")
    assert getattr(import_module(module), function) is wheel_task.verb
    (home / "runs/first/checkpoints").mkdir(parents=True)
    (home / "runs/first/checkpoints/weights").write_bytes(b"x")
    monkeypatch.setenv("TONNAGE_KEEP_IN", str(home / "volume"))
    monkeypatch.setattr(sys, "argv", ["task", "--version"])
    wheel_task.verb()
    assert (home / "volume/first/checkpoints/weights").read_bytes() == b"x"
    (home / "runs/first/checkpoints/weights").write_bytes(b"y")
    monkeypatch.setattr(sys, "argv", ["task", "run", "nothing.yaml"])
    with pytest.raises(RuntimeError, match="tonnage run ended with exit code 2"):
        wheel_task.verb()
    assert (home / "volume/first/checkpoints/weights").read_bytes() == b"y"
