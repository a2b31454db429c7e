"""The Helm chart: its values are closed and complete, and a release of it is the plain manifests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import tonnage
from tonnage.deployment.described import Deployed, described
from tonnage.deployment.helm import helm_files, schema, values
from tonnage.deployment.manifests import manifests

WHATS = {
    "serve": described("reviews", ("serve", "run-7", "--replicas", "2..4"), version="0.1.0", secrets=("KEY",), gpus=1),
    "ui": described("page", ("ui", "--host", "0.0.0.0", "--behind-proxy"), version="0.1.0rc1+local",
                    image="registry.example.org:5000/t@sha256:" + "0" * 64),
    "gateway": described("chat", ("gateway", "/etc/tonnage/files/it's {{ here }}.yaml"), version="1.2", port=8080,
                         files={"it's {{ here }}.yaml": "models: {a: '{{ b }}'}\n", "rules/é.yaml": "a: 1\n"}),
    "watch": described("guard", ("watch",), version="0.1.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHATS)
def test_values_are_closed_and_every_one_is_used(name: str) -> None:
    """Each value that a template names is in values.yaml and in its schema, and none is there for nothing."""
    what = WHATS[name]
    files, held = helm_files(what), values(what)
    templates = "".join(text for path, text in files.items() if path.startswith("templates/"))
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", templates))
    tops = {one.split(".")[0] for one in used}
    assert tops == set(held)
    for one in used:
        inner: Any = held
        for part in one.split("."):
            inner = inner[part]
    assert yaml.safe_load(files["values.yaml"]) == held
    said = schema(what)
    assert said["additionalProperties"] is False
    assert set(said["required"]) == set(held)
    assert ("templates/tests/check.yaml" in files) is (what.port is not None)
    assert yaml.safe_load(files["Chart.yaml"])["appVersion"] == what.version
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", yaml.safe_load(files["Chart.yaml"])["version"])


def written(what: Deployed, folder: Path) -> Path:
    for path, text in {**helm_files(what), **{f"files/{path}": text for path, text in what.files}}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def helm(*args: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("helm") is None:
        pytest.skip("helm is not here")
    return subprocess.run(["helm", *args], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.heavy
@pytest.mark.parametrize("name", WHATS)
def test_a_release_is_the_plain_manifests(tmp_path: Path, name: str) -> None:
    """By the real helm: lint takes the chart; its objects are those of the manifests, with two defaults written out."""
    what = WHATS[name]
    chart = str(written(what, tmp_path / "chart"))
    linted = helm("lint", "--strict", chart)
    assert linted.returncode == 0, linted.stdout
    done = helm("template", what.name, chart)
    assert done.returncode == 0, done.stderr
    found = {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}
    check = found.pop("Pod", None)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    if what.port is not None:
        assert found["Service"]["spec"].pop("type") == "ClusterIP"
        assert check is not None
        address = f"http://tonnage-{what.name}:{what.port}"
        assert check["spec"]["containers"][0]["args"] == ["deploy", "check", address]
        assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert found == {one["kind"]: one for one in manifests(what)}


@pytest.mark.heavy
def test_helm_refuses_values_that_are_none(tmp_path: Path) -> None:
    """Misspelt, of another type, `latest`; others change what they say."""
    chart = str(written(WHATS["serve"], tmp_path / "chart"))
    for wrong in ("imagee.tag=1", "image.tag=latest", "service.port=0", "storage.size=much", "networkPolicy.enabled=7"):
        done = helm("template", "reviews", chart, "--set", wrong)
        assert done.returncode != 0, wrong
        assert "values don't meet the specifications of the schema" in done.stderr
    more = ("networkPolicy.enabled=false,service.type=NodePort,storage.className=fast,nodeSelector.pool=gpu,"
            "service.port=80,tolerations[0].operator=Exists")  # fmt: skip
    found = {one["kind"]: one for one in yaml.safe_load_all(helm("template", "other", chart, "--set", more).stdout)}
    assert "NetworkPolicy" not in found
    assert found["Service"]["spec"]["type"] == "NodePort"
    assert found["Service"]["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http"}]
    assert found["PersistentVolumeClaim"]["spec"]["storageClassName"] == "fast"
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "gpu"}, [{"operator": "Exists"}])
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "tonnage-other"


def test_a_chart_is_written_and_its_next_steps_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files of the command; without helm it is said that nothing linted it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tonnage.api.deploying.shutil.which", lambda _: None)
    (tmp_path / "rules.yaml").write_text("rules: {}\n")
    asked = tonnage.DeployOptions(kind="helm", secrets=("KEY",))
    made = tonnage.deploy_files("guard", ("watch", "rules.yaml"), tmp_path / "chart", asked).found
    assert made.checks[-1] == "not linted: helm is not here"
    assert made.next_steps[-1] == "helm upgrade --install guard . --wait --atomic --timeout 16m"
    assert (tmp_path / "chart" / "files" / "rules.yaml").read_text() == "rules: {}\n"
    assert json.loads((tmp_path / "chart" / "values.schema.json").read_text())["additionalProperties"] is False
    config = (tmp_path / "chart" / "templates" / "configmap.yaml").read_text()
    assert '{{ .Files.Get "files/rules.yaml" | toJson }}' in config
