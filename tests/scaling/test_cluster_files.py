"""The files of other autoscalers carry the tuned settings, in the words of their own systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import tonnage
from tonnage.errors import InputError
from tonnage.scaling.cluster_files import RENDERED, render_cluster_file
from tonnage.scaling.service import ScaledService

SERVICE = ScaledService(slots=16, start_up_s=60.0, least=0, most=8)

KEDA_QUEUE = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: chat
spec:
  scaleTargetRef:
    name: chat
  pollingInterval: 15
  cooldownPeriod: 300
  minReplicaCount: 0
  maxReplicaCount: 8
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: 300
  triggers:
  - type: prometheus
    metricType: AverageValue
    metadata:
      serverAddress: http://prometheus-server.monitoring.svc:80
      query: sum(tonnage_requests_waiting) + sum(tonnage_requests_running)
      threshold: '12'
"""


def rendered(policy: str) -> Any:
    return yaml.safe_load(render_cluster_file(policy, SERVICE, 0.75, 4.0, name="chat"))


def test_keda_is_written_whole() -> None:
    """Three quarters of 16 slots are 12 requests a replica."""
    assert render_cluster_file("keda-queue", SERVICE, 0.75, 4.0, name="chat") == KEDA_QUEUE
    trigger = rendered("keda-rate")["spec"]["triggers"][0]["metadata"]
    assert (trigger["threshold"], "rate(" in trigger["query"]) == ("3", True)  # 12 slots of 4 s each


def test_the_hpa_has_no_zero() -> None:
    """autoscaling/v2 with an external metric; at least one replica."""
    found = rendered("hpa")
    assert (found["apiVersion"], found["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    spec = found["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 8)
    assert spec["metrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": "12"}


def test_ray_sky_and_knative_have_their_own_keys() -> None:
    """Ray: ongoing requests; SkyServe: requests a second; Knative: concurrency, as annotations of text."""
    scaling = rendered("ray-serve")["applications"][0]["deployments"][0]["autoscaling_config"]
    assert (scaling["target_ongoing_requests"], scaling["min_replicas"], scaling["max_replicas"]) == (12, 0, 8)
    policy = rendered("skyserve")["service"]["replica_policy"]
    assert (policy["target_qps_per_replica"], policy["upscale_delay_seconds"]) == (3, 300)
    notes = rendered("knative")["spec"]["template"]["metadata"]["annotations"]
    assert notes["autoscaling.knative.dev/target"] == "12"
    assert all(isinstance(value, str) for value in notes.values())


def test_ray_takes_its_settings() -> None:
    """Ray's own class accepts them."""
    config = pytest.importorskip("ray.serve.config")
    scaling = rendered("ray-serve")["applications"][0]["deployments"][0]["autoscaling_config"]
    assert config.AutoscalingConfig(**scaling).target_ongoing_requests == 12


def test_a_comparison_writes_the_files_of_those_that_keep_the_promise(tmp_path: Path) -> None:
    """The HPA beside KEDA; static has no file; a folder that is none is refused."""
    asked = tonnage.ScalingOptions(
        burst="steady", hours=0.3, peak_slots=20, slots=4, policies=("static", "keda-queue"), files=str(tmp_path),
        name="chat",
    )  # fmt: skip
    found = tonnage.simulate_scaling(options=asked).found
    assert all(one.keeps for one in found.results)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hpa.yaml", "keda-queue.yaml"]
    threshold = float(
        yaml.safe_load((tmp_path / "keda-queue.yaml").read_text())["spec"]["triggers"][0]["metadata"]["threshold"]
    )
    setting = next(one.setting for one in found.results if one.policy == "keda-queue")
    assert setting is not None
    assert threshold == pytest.approx(4 * setting, rel=0.01)
    with pytest.raises(InputError, match="is not a folder"):
        tonnage.simulate_scaling(options=tonnage.ScalingOptions(
            burst="steady", hours=0.1, peak_slots=4, policies=("static",), files=str(tmp_path / "none")))  # fmt: skip


def test_what_has_no_file_is_refused() -> None:
    """The hint names those that have."""
    with pytest.raises(InputError, match="no file sets 'static'"):
        render_cluster_file("static", SERVICE, 3.0, 1.0, name="chat")
    assert "static" not in RENDERED
