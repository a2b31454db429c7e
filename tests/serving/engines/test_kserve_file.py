"""A planned replica as a KServe InferenceService."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.kserve_file import ClusterReplicas, cluster_name, render_kserve
from tonnage.serving.engines.registry import command_engine

SERVICE = GenerationService(model="org/chat", name="chat", most_requests=16, tensor_parallel=2)
REPLICAS = ClusterReplicas(name="chat", least=1, most=4, slots=16, gpus=2, ready_timeout_s=900, api_key=True)
VLLM = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: chat
spec:
  predictor:
    annotations:
      serving.knative.dev/progress-deadline: 900s
    minReplicas: 1
    maxReplicas: 4
    scaleMetric: concurrency
    scaleTarget: 16
    containerConcurrency: 16
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.33.0
      args:
      - org/chat
      - --served-model-name
      - chat
      - --dtype
      - float16
      - --kv-cache-dtype
      - auto
      - --tensor-parallel-size
      - '2'
      - --max-num-seqs
      - '16'
      - --host
      - 0.0.0.0
      - --port
      - '8080'
      ports:
      - containerPort: 8080
        protocol: TCP
      readinessProbe:
        httpGet:
          path: /health
          port: 8080
        periodSeconds: 10
        failureThreshold: 90
      env:
      - name: VLLM_API_KEY
        valueFrom:
          secretKeyRef:
            name: chat
            key: VLLM_API_KEY
      resources:
        limits:
          nvidia.com/gpu: '2'
      volumeMounts:
      - name: shm
        mountPath: /dev/shm
    volumes:
    - name: shm
      emptyDir:
        medium: Memory
"""


def test_vllm_is_written_whole() -> None:
    """The planned arguments, GPUs, slots; the key is a secret's."""
    assert render_kserve(command_engine("vllm"), SERVICE, REPLICAS) == VLLM


def test_images_that_start_nothing_are_told_their_program() -> None:
    """SGLang's image starts what it is told; no GPU, no shared memory."""
    text = render_kserve(command_engine("sglang"), SERVICE, replace(REPLICAS, gpus=0, api_key=False))
    predictor = yaml.safe_load(text)["spec"]["predictor"]
    assert predictor["containers"][0]["args"][:3] == ["python3", "-m", "sglang.launch_server"]
    assert {"env", "resources", "volumeMounts"}.isdisjoint(predictor["containers"][0])
    assert "volumes" not in predictor


def test_what_a_cluster_does_not_have_is_refused() -> None:
    """A folder of this machine, a file of options."""
    with pytest.raises(InputError, match="which a cluster does not see"):
        render_kserve(command_engine("vllm"), replace(SERVICE, model="/models/chat"), REPLICAS)
    with pytest.raises(InputError, match="which is not mounted"):
        render_kserve(command_engine("tensorrt-llm"), SERVICE, replace(REPLICAS, api_key=False))


@pytest.mark.parametrize(
    ("name", "label"), [("Llama_2.7b", "llama-2-7b"), ("7b", "m-7b"), ("a" * 70, "a" * 63), ("-x-", "x")]
)
def test_names_are_labels(name: str, label: str) -> None:
    """RFC 1123, beginning with a letter."""
    assert cluster_name(name) == label


def test_a_gpu_of_amd_has_amds_resource() -> None:
    """And the file says that the image is of CUDA; a maker without a device plugin is refused."""
    text = render_kserve(command_engine("vllm"), SERVICE, REPLICAS, vendor="AMD")
    container = yaml.safe_load(text)["spec"]["predictor"]["containers"][0]
    assert container["resources"] == {"limits": {"amd.com/gpu": "2"}}
    assert text.startswith("# vllm/vllm-openai")
    with pytest.raises(InputError, match="of Intel Habana is not known"):
        render_kserve(command_engine("vllm"), SERVICE, REPLICAS, vendor="Intel Habana")
