"""The files for clusters against what a real control plane takes: our check gives its recorded answers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.places.kubernetes.checking.judging import judge
from tonnage.scaling.cluster_files import render_cluster_file
from tonnage.scaling.service import ScaledService
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.kserve_file import ClusterReplicas, render_kserve
from tonnage.serving.engines.registry import command_engine

from ..places.kubernetes import verdicts

SERVICES = [
    ScaledService(slots=slots, start_up_s=60.0, least=least, most=most)
    for slots, least, most in ((1, 0, 1), (16, 1, 8), (256, 3, 3), (100_000, 0, 1000))
]
JUDGED = {"hpa": "HorizontalPodAutoscaler", "keda-queue": "ScaledObject", "keda-rate": "ScaledObject"}
SAMPLE = Path(__file__).parents[1] / "data" / "kubernetes_autoscaler_verdicts.jsonl"


def rendered(policy: str, service: ScaledService, *, setting: float = 0.75, name: str = "chat") -> Any:
    return yaml.safe_load(render_cluster_file(policy, service, setting, 0.013, name=name))


@pytest.mark.parametrize("service", SERVICES, ids=lambda one: f"{one.slots} slots, {one.least} to {one.most}")
@pytest.mark.parametrize("policy", JUDGED)
def test_autoscalers_files_are_taken(policy: str, service: ScaledService) -> None:
    """Small targets and large ones, with and without 0."""
    for setting in (0.001, 0.75, 1.0, 3.0):
        found = rendered(policy, service, setting=setting)
        assert found["kind"] == JUDGED[policy]
        assert [(one.field, one.message) for one in judge(found).refusals] == []


def recorded() -> list[dict[str, Any]]:
    """Rows of autoscalers: of the whole record where the folder of facts is there, else a sample of it."""
    folder = os.environ.get("TONNAGE_FACTS")
    file = SAMPLE if folder is None else Path(folder) / "kubernetes" / "verdicts.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    return [row for row in rows if (row.get("object") or {}).get("kind") in JUDGED.values()]


def test_our_check_gives_the_real_servers_answers_on_autoscalers() -> None:
    """Taken or refused, row by row: what it takes of our files a real server would take."""
    rows = recorded()
    assert {row["object"]["kind"] for row in rows} == set(JUDGED.values())
    assert {row["accepted"] for row in rows} == {True, False}
    for row in rows:
        assert verdicts.judged(row).accepted == row["accepted"], row["id"]


@pytest.mark.parametrize("policy", JUDGED)
def test_a_mistake_in_them_would_be_seen(policy: str) -> None:
    """The mistakes that the record has, in our files: each is refused."""
    found = rendered(policy, SERVICES[1])
    spec = found["spec"]
    wrong = [{**found, "spec": {**spec, "unknown": 1}}, {**found, "metadata": {"name": "Chat_1"}}]
    if policy == "hpa":
        wrong += [{**found, "spec": {**spec, "minReplicas": 0}}, {**found, "spec": {**spec, "minReplicas": 9}}]
    else:
        numbers = [{**spec["triggers"][0], "metadata": {**spec["triggers"][0]["metadata"], "threshold": 5}}]
        wrong += [{**found, "spec": {**spec, "triggers": []}}, {**found, "spec": {**spec, "triggers": numbers}}]
    assert [judge(one).accepted for one in wrong] == [False] * len(wrong)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("gpus", [0, 2])
def test_the_pod_of_a_kserve_file_is_taken(engine: str, gpus: int) -> None:
    """KServe's own definition is not in the record: its predictor is a pod's spec with fields of KServe beside it."""
    service = GenerationService(model="org/chat", name="chat", most_requests=16, tensor_parallel=max(gpus, 1))
    replicas = ClusterReplicas(
        name="Chat_1", least=1, most=4, slots=16, gpus=gpus, ready_timeout_s=900, api_key=engine == "vllm"
    )
    found = yaml.safe_load(render_kserve(command_engine(engine), service, replicas))
    predictor = found["spec"]["predictor"]
    spec = {name: predictor[name] for name in ("containers", "volumes") if name in predictor}
    metadata = {**found["metadata"], "annotations": predictor["annotations"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    assert [(one.field, one.message) for one in judge(pod).refusals] == []
    assert replace(replicas, name="chat-1").name == found["metadata"]["name"]
