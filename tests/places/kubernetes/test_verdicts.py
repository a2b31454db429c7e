"""Our check before a submit against the recorded answers of a real API server, row by row."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.places.kubernetes import verdicts as facts

from tonnage.places.kubernetes.checking.decoding import find_kind
from tonnage.places.kubernetes.checking.judging import Server, judge
from tonnage.places.kubernetes.names import group_path, plural
from tonnage.testing.kubernetes.server import TOKEN, fake_cluster

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x:1"}]}}},
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """The Job with one value set: `spec.template.spec.containers.0.image`."""
    made: Any = copy.deepcopy(JOB)
    at = made
    *way, last = path.split(".")
    for name in way:
        at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
    at[last] = value
    return made  # type: ignore[no-any-return]


@pytest.mark.skipif(facts.FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_every_verdict_of_the_real_server() -> None:
    """Taken or refused, with which code, and which fields a refusal names: the same in every row."""
    rows, wrong = facts.rows(), []
    for row in rows:
        answer, ours = facts.said(row), facts.judged(row)
        fields = facts.fields_of(answer) if not answer["accepted"] else None
        named = {one.field for one in ours.refusals}
        codes = {one.code for one in ours.refusals}
        if ours.accepted != answer["accepted"]:
            wrong.append(f"{row['id']}: {named}")
        elif not ours.accepted and (codes != {answer["code"]} or (fields is not None and named != fields)):
            wrong.append(f"{row['id']}: {codes} {named} for {answer['code']} {fields}")
    assert wrong == []
    assert len(rows) >= 544


@pytest.mark.skipif(facts.FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_the_pretended_server_answers_as_the_real_one(tmp_path: Path) -> None:
    """Every recorded create, over HTTP: the same code, and the same fields where the answer has causes."""
    rows = [
        one for one in facts.rows() if not {"first", "raw_body"} & one.keys() and "webhooks" not in one["admission"]
    ]
    wrong = []
    with fake_cluster(tmp_path / "held", facts.server_of(rows[0])) as held, httpx.Client() as http:
        held.controller.held = True
        for row in rows:
            one, namespace = row["object"], row.get("request_namespace") or "default"
            path = f"{group_path(one['apiVersion'])}/namespaces/{namespace}/{plural(one['kind'])}"
            signed = {"Authorization": f"Bearer {TOKEN}"}
            answer = http.post(held.url + path, params={"dryRun": "All"}, json=one, headers=signed)
            fields = facts.fields_of(row) if row["code"] == 422 else None
            causes = answer.json().get("details", {}).get("causes", ())
            named = {"" if cause["field"] == "<nil>" else cause["field"] for cause in causes}
            if answer.status_code != row["code"] or (fields is not None and named != fields):
                wrong.append(f"{row['id']}: {answer.status_code} {named}, not {row['code']} {fields}")
    assert wrong == []
    assert len(rows) > 380


@pytest.mark.skipif(facts.FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_the_pretended_server_changes_what_the_real_one_changes(tmp_path: Path) -> None:
    """Every recorded pair of server-side applies, each over an object of its own."""
    wrong, asked = [], 0
    for hooks in ("", "webhooks"):
        rows = [one for one in facts.rows() if "first" in one and ("webhooks" in one["admission"]) == bool(hooks)]
        with fake_cluster(tmp_path / f"held{hooks}", facts.server_of(rows[0])) as held, httpx.Client() as http:
            held.controller.held = True
            for row in rows:
                asked += 1
                first, second = row["first"], row["second"]
                path = f"{group_path(first['apiVersion'])}/namespaces/default/{plural(first['kind'])}"
                path += f"/{first['metadata']['name']}"
                held.store.remove(path)
                codes = [
                    http.patch(held.url + path, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, params={
                        "fieldManager": answer["fieldManager"], "force": str(row["method"].endswith("force")).lower()
                    }).status_code
                    for body, answer in ((first, row["first_verdict"]), (second, row["verdict"]))
                ]  # fmt: skip
                expected = [row["first_verdict"]["code"], row["verdict"]["code"]]
                if [code // 100 * 100 if code < 300 else code for code in codes] != [
                    code // 100 * 100 if code < 300 else code for code in expected
                ]:  # fmt: skip
                    wrong.append(f"{row['id']}: {codes}, not {expected}")
    assert wrong == []
    assert asked >= 52


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("spec.template.spec.containers.0.gpus", 8, "spec.template.spec.containers[0].gpus"),
        ("spec.backoffLimit", "3", "spec.backoffLimit"),
        ("spec.template.spec.containers.0.resources", {"requests": {"nvidia.com/gpu": 1}},
         "spec.template.spec.containers[0].resources.limits"),
        ("spec.template.spec.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        ("metadata.name", "Train", "metadata.name"),
        ("metadata.labels", {"run": "a b"}, "metadata.labels"),
        ("spec.completionMode", "Indexed", "spec.completions"),
        ("spec.template.spec.tolerations", [{"key": "gpu", "operator": "Exists", "value": "x"}],
         "spec.template.spec.tolerations[0].operator"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_field(path: str, value: Any, field: str) -> None:
    """Without the recorded rows: common mistakes in a Job."""
    assert [one.field for one in judge(changed(path, value)).refusals] == [field]


def test_what_is_not_known_is_not_refused() -> None:
    """A pod's priority class is refused where the cluster's are known, and only there."""
    spec = {"containers": [{"name": "c", "image": "x"}], "priorityClassName": "high"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert judge(pod).accepted
    assert [one.code for one in judge(pod, Server(priority_classes=frozenset())).refusals] == [403]
    assert judge(pod, Server(priority_classes=frozenset({"high"}))).accepted


def test_rules_in_cel_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it they are said to be unchecked, never taken to hold."""
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"},
             "spec": {"clusterQueue": "cq"}}  # fmt: skip
    assert judge(queue).unchecked == ()
    monkeypatch.setattr("tonnage.places.kubernetes.checking.judging.can_evaluate", lambda: False)
    [said] = judge(queue).unchecked
    assert "tonnage[kubernetes]" in said


def test_every_kind_that_is_sent_is_known() -> None:
    """Built-in kinds, and those of Kueue, JobSet, KubeRay, Kubeflow Trainer and KEDA."""
    sent = ("batch/v1 Job", "jobset.x-k8s.io/v1alpha2 JobSet", "ray.io/v1 RayJob", "v1 PersistentVolumeClaim",
            "trainer.kubeflow.org/v1alpha1 TrainJob", "keda.sh/v1alpha1 ScaledObject")  # fmt: skip
    assert [find_kind(*one.split()) is not None for one in sent] == [True] * len(sent)
