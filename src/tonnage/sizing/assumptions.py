"""Judgements the physics needs: each with its default, its range and where it comes from.

They are arguments of the functions that use them (`Assumptions()` by default), so a calibration can replace them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from tonnage.sizing.estimates import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One judgement as the documentation prints it."""

    name: str
    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Efficiencies, floors and overheads. Units in the names; `SOURCES` says range and origin of each."""

    gemm_peak_fraction: float = 0.74
    memory_peak_fraction: float = 0.80
    roofline_sharpness: float = 3.0
    tiles_to_half_rate: float = 7.0
    kernel_floor_us: float = 6.0
    power_limited_fraction: float = 0.65
    attention_peak_fraction: float = 0.55
    attention_half_length_tokens: float = 256.0
    host_launch_us_per_kernel: float = 9.0
    compiled_kernel_fraction: float = 0.35
    convolution_peak_fraction: float = 0.50
    training_convolution_fraction: float = 0.9
    convolution_traffic_factor: float = 0.695
    fused_traffic_fraction: float = 0.48
    compiled_traffic_fraction: float = 0.216
    issue_cycles_per_element: float = 0.269
    unfused_traffic_factor: float = 0.649
    training_attention_fraction: float = 0.305
    training_attention_hopper_share: float = 0.573
    graphics_energy_factor: float = 3.0
    training_launch_us_per_kernel: float = 63.0
    optimizer_launch_us_per_tensor: float = 19.0
    tensor_overlap_fraction: float = 0.7
    sustained_cap_fraction: float = 1.15
    joules_per_tflop_12nm: float = 2.46
    joules_per_tflop_7nm: float = 0.734
    joules_per_tflop_5nm: float = 0.595
    sustained_fp32_fraction: float = 1.29
    sustained_tf32_fraction: float = 0.758
    sustained_fp8_fraction: float = 1.01
    optimizer_memory_fraction: float = 0.75
    communication_overlap_fraction: float = 0.252
    network_peak_fraction: float = 0.517
    network_latency_us: float = 40.0
    runtime_context_gib: float = 0.8
    collective_buffers_gib: float = 0.7
    training_communicator_gib: float = 1.27
    library_workspace_gib: float = 0.15
    fragmentation_fraction: float = 0.235
    memory_margin_fraction: float = 0.10
    loss_bytes_per_logit: float = 12.0
    compiled_loss_bytes_per_logit: float = 9.0
    kv_cache_memory_fraction: float = 0.90
    target_utilisation: float = 0.80

    def of_precision(self, compute: str) -> float:
        """Share of its own peak that a precision's products reach, over what 16-bit products reach."""
        return float(getattr(self, f"sustained_{compute}_fraction", 1.0))


SOURCES: Final[dict[str, tuple[float, float, str]]] = {
    "gemm_peak_fraction": (
        0.72,
        0.8,
        "fit to 1,064 fp16 matrix products measured on A100, A40 and H100 (microsoft/vidur@7d475133): median "
        "error 4 %, 90th percentile 12 %",
    ),
    "memory_peak_fraction": (
        0.74,
        0.92,
        "the same products at 1 to 64 tokens, where weights stream from memory",
    ),
    "roofline_sharpness": (
        2.5,
        4.0,
        "the same fit: how sharply compute- and memory-bound times join",
    ),
    "tiles_to_half_rate": (
        3.0,
        10.0,
        "the same fit: 128 x 128 output tiles at which half the rate is reached",
    ),
    "kernel_floor_us": (
        4.0,
        10.0,
        "the same fit: what one kernel costs however small",
    ),
    "power_limited_fraction": (
        0.55,
        0.8,
        "share of the printed rate that boards of 75 W or less sustain: TensorRT BERT-large on T4 reaches "
        "0.64 to 0.67 of what the same formula gives for A100 and V100 (NVIDIA/TensorRT demo/BERT@5094c1de)",
    ),
    "attention_peak_fraction": (
        0.35,
        0.7,
        "FlashAttention-2 reaches 50 to 73 % of peak forward on A100 (Dao 2023, arXiv:2307.08691, figure 4)",
    ),
    "attention_half_length_tokens": (
        128.0,
        512.0,
        "the same figure: rate over sequence length 512 to 16k",
    ),
    "host_launch_us_per_kernel": (
        6.0,
        14.0,
        "eager PyTorch BERT-base takes 8 to 9 ms for one forward whatever the batch (~0.65 ms a layer); "
        "NVIDIA DeepLearningExamples and onnxruntime tables",
    ),
    "compiled_kernel_fraction": (
        0.2,
        0.5,
        "kernels left after torch.compile fuses element-wise work: judgement",
    ),
    "convolution_peak_fraction": (
        0.35,
        0.6,
        "ResNet-50 mixed-precision training on V100 and A100, NVIDIA DeepLearningExamples: judgement within",
    ),
    "issue_cycles_per_element": (
        0.005,
        0.5,
        "cycles of a multiprocessor that an element-wise pass takes for each element it moves, beside the bytes; "
        "fitted to published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "unfused_traffic_factor": (
        0.5,
        2.5,
        "element-wise passes of an eager framework over the ones counted; fitted to published training "
        "throughputs (docs/decisions/training-accuracy.md)",
    ),
    "training_attention_fraction": (
        0.1,
        0.7,
        "attention in training, forward and backward, over the sustained peak, at long sequences; fitted to "
        "published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "training_attention_hopper_share": (
        0.4,
        1.2,
        "the same on Hopper over that: kernels written for the generation before; fitted to published "
        "training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "graphics_energy_factor": (
        0.7,
        4.0,
        "energy of an operation on a graphics die (small tensor cores, GDDR memory) over that on a compute die of "
        "the same process; fitted to published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "training_launch_us_per_kernel": (
        10.0,
        120.0,
        "what an eager framework's host takes for a kernel of forward (Python, dispatch, autograd, launch); fitted to "
        "published training throughputs (docs/decisions/training-accuracy.md); 40 to 90 on the host of a rented H100 "
        "(benchmarks/results/gpu_models_training_h100-80gb-sxm_2026-11-22.csv)",
    ),
    "optimizer_launch_us_per_tensor": (
        1.0,
        150.0,
        "host time of an optimizer step for each trained tensor where its kernels are not fused into one; fitted to "
        "published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "tensor_overlap_fraction": (
        0.4,
        0.9,
        "share of tensor-parallel traffic that programs which cut it up hide behind products: judgement; Transformer "
        "Engine's user buffers overlap all of it but the first and last piece (docs/decisions/training-accuracy.md)",
    ),
    "fused_traffic_fraction": (
        0.1,
        1.2,
        "element-wise time left with hand-written fused kernels; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "compiled_traffic_fraction": (
        0.1,
        1.6,
        "element-wise time left with torch.compile or JAX; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "sustained_fp32_fraction": (
        0.7,
        1.5,
        "32-bit products against 16-bit ones, each as a share of its own peak; fitted to published training "
        "throughputs (docs/decisions/training-accuracy.md)",
    ),
    "sustained_tf32_fraction": (
        0.7,
        1.35,
        "tf32 products, likewise; fitted to published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "sustained_fp8_fraction": (
        0.4,
        1.5,
        "fp8 products with their casts, likewise; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "training_convolution_fraction": (
        0.2,
        0.9,
        "convolutions in training over the sustained peak; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "convolution_traffic_factor": (
        0.3,
        1.6,
        "passes over the results of convolutions that a library's kernels take, over the ones counted; fitted to "
        "published training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "optimizer_memory_fraction": (
        0.6,
        0.9,
        "fused AdamW streams its state at memory bandwidth: judgement",
    ),
    "communication_overlap_fraction": (
        0.1,
        0.97,
        "share of gradient and parameter traffic hidden behind compute by DDP and FSDP; fitted to published training "
        "throughputs together with network_peak_fraction (docs/decisions/training-accuracy.md)",
    ),
    "network_peak_fraction": (
        0.4,
        0.9,
        "share of the printed network rate that collectives across nodes reach: judgement; measured points "
        "are 6 to 22 GB/s on 100 to 200 Gbit/s links",
    ),
    "network_latency_us": (
        15.0,
        80.0,
        "a small message between nodes: 24 to 56 us measured (microsoft/vidur@7d475133)",
    ),
    "runtime_context_gib": (
        0.3,
        1.5,
        "CUDA context and loaded kernels, outside the framework's allocator; fitted to published peaks "
        "(docs/decisions/training-accuracy.md)",
    ),
    "collective_buffers_gib": (0.3, 1.5, "NCCL channels and buffers per device, with more than one device"),
    "training_communicator_gib": (
        0.2,
        2.0,
        "NCCL channels and buffers per device in training, for each kind of parallelism (data, tensor, pipeline); "
        "fitted to published peaks (docs/decisions/training-accuracy.md)",
    ),
    "library_workspace_gib": (
        0.05,
        0.5,
        "cuBLAS / cuDNN workspaces",
    ),
    "fragmentation_fraction": (
        0.02,
        0.5,
        "what the caching allocator reserves over the logits, and over activations that are made again, in use; fitted "
        "to published peaks (docs/decisions/training-accuracy.md)",
    ),
    "memory_margin_fraction": (
        0.0,
        0.15,
        "share of device memory kept free; `--memory-margin` sets it; the least with under 1 % false fits on published "
        "peaks (docs/decisions/what-fits.md)",
    ),
    "loss_bytes_per_logit": (
        8.0,
        18.0,
        "fp32 log-softmax, its gradient and that of the logits, 4 bytes each (PyTorch, nll_loss_backward and "
        "_log_softmax_backward_data); 2 or 4 more where the program holds the logits. Ten peaks of transformers on an "
        "H100 say 11.9 to 12.1 (benchmarks/results)",
    ),
    "compiled_loss_bytes_per_logit": (
        6.0,
        12.0,
        "the same with a compiled loss: 7.4 measured where the whole model is compiled (benchmarks/results), 10.8 "
        "where the loss is (torchtune README, with and without chunked cross entropy)",
    ),
    "kv_cache_memory_fraction": (
        0.85,
        0.95,
        "vLLM's default gpu_memory_utilization is 0.9",
    ),
    "target_utilisation": (
        0.6,
        0.9,
        "load at which a fleet is planned, so that queues stay short: judgement",
    ),
    "sustained_cap_fraction": (
        0.9,
        1.35,
        "rate held in training over the isolated-kernel rate, where power does not limit; fitted to published "
        "training throughputs (docs/decisions/training-accuracy.md)",
    ),
    "joules_per_tflop_12nm": (
        0.3,
        6.0,
        "energy of 10^12 16-bit operations with the traffic around them, 12 nm class (Volta, Turing): the "
        "power limit over it bounds the rate; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "joules_per_tflop_7nm": (
        0.3,
        3.0,
        "the same, 7 and 8 nm class (Ampere); fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
    "joules_per_tflop_5nm": (
        0.2,
        2.0,
        "the same, 5 nm class and newer (Ada, Hopper, Blackwell); fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    ),
}

# 80 % intervals. Training: quantiles of measured over predicted step time (763 published runs of language models, V100
# to H100; as `calibration.intervals` takes them for a new family) and 10th and 90th percentile of peak memory (99
# readings), each family judged by a fit that has not seen it (docs/decisions/training-accuracy.md). The others are
# judgements.
TRAINING_TIME_SPREAD: Final = Spread(low_factor=0.82, high_factor=1.24)
TRAINING_MEMORY_SPREAD: Final = Spread(low_factor=0.71, high_factor=1.15)
INFERENCE_TIME_SPREAD: Final = Spread(low_factor=0.75, high_factor=1.40)
INFERENCE_MEMORY_SPREAD: Final = Spread(low_factor=0.92, high_factor=1.10)


def listed(assumptions: Assumptions) -> tuple[Assumption, ...]:
    """Every assumption with its range and source, in declaration order."""
    return tuple(
        Assumption(
            name=field.name,
            value=float(getattr(assumptions, field.name)),
            low=SOURCES[field.name][0],
            high=SOURCES[field.name][1],
            source=SOURCES[field.name][2],
        )
        for field in fields(assumptions)
    )
