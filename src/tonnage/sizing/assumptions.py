"""Judgements the physics needs: each with its default, its range and where it comes from.

They are arguments of the functions that use them (`Assumptions()` by default), so a calibration can replace them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.sizing.assumption_table import Assumption, FittedBy, listed, parameter
from tonnage.sizing.estimates import Spread
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Efficiencies, floors and overheads. Units in the names; `listed` says range and origin of each."""

    # fmt: off
    gemm_peak_fraction: float = parameter(
        0.74, 0.72, 0.8,
        source="fit to 1,064 fp16 matrix products measured on A100, A40 and H100 (microsoft/vidur@7d475133): median "
        "error 4 %, 90th percentile 12 %",
    )
    memory_peak_fraction: float = parameter(
        0.8, 0.74, 0.92,
        source="the same products at 1 to 64 tokens, where weights stream from memory",
    )
    roofline_sharpness: float = parameter(
        3.0, 2.5, 4.0,
        source="the same fit: how sharply compute- and memory-bound times join",
    )
    tiles_to_half_rate: float = parameter(
        7.0, 3.0, 10.0,
        source="the same fit: 128 x 128 output tiles at which half the rate is reached",
    )
    kernel_floor_us: float = parameter(
        6.0, 4.0, 10.0,
        source="the same fit: what one kernel costs however small",
    )
    power_limited_fraction: float = parameter(
        0.65, 0.55, 0.8,
        source="share of the printed rate that boards of 75 W or less sustain: TensorRT BERT-large on T4 reaches "
        "0.64 to 0.67 of what the same formula gives for A100 and V100 (NVIDIA/TensorRT demo/BERT@5094c1de)",
    )
    attention_peak_fraction: float = parameter(
        0.55, 0.35, 0.7,
        source="FlashAttention-2 reaches 50 to 73 % of peak forward on A100 (Dao 2023, arXiv:2307.08691, figure 4)",
    )
    attention_half_length_tokens: float = parameter(
        256.0, 128.0, 512.0,
        source="the same figure: rate over sequence length 512 to 16k",
    )
    host_launch_us_per_kernel: float = parameter(
        9.0, 6.0, 14.0,
        source="eager PyTorch BERT-base takes 8 to 9 ms for one forward whatever the batch (~0.65 ms a layer); "
        "NVIDIA DeepLearningExamples and onnxruntime tables",
    )
    compiled_kernel_fraction: float = parameter(
        0.35, 0.2, 0.5,
        source="kernels left after torch.compile fuses element-wise work: judgement",
    )
    convolution_peak_fraction: float = parameter(
        0.5, 0.35, 0.6,
        source="ResNet-50 mixed-precision training on V100 and A100, NVIDIA DeepLearningExamples: judgement within",
    )
    training_convolution_fraction: float = parameter(
        0.9, 0.2, 0.9, fitted_by="training time", start=0.5,
        source="convolutions in training over the sustained peak; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    convolution_traffic_factor: float = parameter(
        0.695, 0.3, 1.6, fitted_by="training time", start=0.8,
        source="passes over the results of convolutions that a library's kernels take, over the ones counted; fitted "
        "to published training throughputs (docs/decisions/training-accuracy.md)",
    )
    fused_traffic_fraction: float = parameter(
        0.48, 0.1, 1.2, fitted_by="training time", start=0.5,
        source="element-wise time left with hand-written fused kernels; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    compiled_traffic_fraction: float = parameter(
        0.216, 0.1, 1.6, fitted_by="training time", start=0.7,
        source="element-wise time left with torch.compile or JAX; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    issue_cycles_per_element: float = parameter(
        0.269, 0.005, 0.5, fitted_by="training time", start=0.08,
        source="cycles of a multiprocessor that an element-wise pass takes for each element it moves, beside the "
        "bytes; fitted to published training throughputs (docs/decisions/training-accuracy.md)",
    )
    unfused_traffic_factor: float = parameter(
        0.649, 0.5, 2.5, fitted_by="training time", start=1.0,
        source="element-wise passes of an eager framework over the ones counted; fitted to published training "
        "throughputs (docs/decisions/training-accuracy.md)",
    )
    training_attention_fraction: float = parameter(
        0.305, 0.1, 0.7, fitted_by="training time", start=0.35,
        source="attention in training, forward and backward, over the sustained peak, at long sequences; fitted to "
        "published training throughputs (docs/decisions/training-accuracy.md)",
    )
    training_attention_hopper_share: float = parameter(
        0.573, 0.4, 1.2, fitted_by="training time", start=0.85,
        source="the same on Hopper over that, and of products with rows that do not start at 16 bytes: kernels "
        "written for the generation before; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    graphics_energy_factor: float = parameter(
        3.0, 0.7, 4.0, fitted_by="training time", start=1.2,
        source="energy of an operation on a graphics die (small tensor cores, GDDR memory) over that on a compute "
        "die of the same process; fitted to published training throughputs (docs/decisions/training- "
        "accuracy.md)",
    )
    training_launch_us_per_kernel: float = parameter(
        55.0, 35.0, 85.0,
        source="what an eager framework's host takes for a kernel of forward (Python, dispatch, autograd, launch): the "
        "mean of the hosts of a rented H100 and H200, 66 and 45; 37 to 82 by step (36 steps that the host bounds for "
        "over half; benchmarks/results/gpu_*_training_*_2026-11-2*.csv). No table of the fit tells it: few published "
        "steps are short enough",
    )
    optimizer_launch_us_per_tensor: float = parameter(
        15.0, 1.0, 15.0, fitted_by="training time", start=10.0,
        source="host time of an optimizer step for each trained tensor where its kernels are not fused into one; "
        "fitted to published training throughputs (docs/decisions/training-accuracy.md) up to what those hosts take",
    )
    tensor_overlap_fraction: float = parameter(
        0.7, 0.4, 0.9,
        source="share of tensor-parallel traffic that programs which cut it up hide behind products: judgement; "
        "Transformer Engine's user buffers overlap all of it but the first and last piece "
        "(docs/decisions/training-accuracy.md)",
    )
    layered_overlap_fraction: float = parameter(
        0.7, 0.4, 0.9,
        source="share of data-parallel traffic that programs which cut it by layers hide behind products: judgement, "
        "as for tensor-parallel traffic; Megatron Bridge documents that all but one layer's runs beside them, on "
        "multiprocessors that they use too (docs/decisions/training-accuracy.md)",
    )
    sustained_cap_fraction: float = parameter(
        1.15, 0.9, 1.35,
        source="rate held in training over the isolated-kernel rate, where power does not limit: judgement; the "
        "energies a product costs are fitted with it",
    )
    joules_per_tflop_12nm: float = parameter(
        2.46, 0.3, 6.0, fitted_by="training time", start=2.0,
        source="energy of 10^12 16-bit operations with the traffic around them, 12 nm class (Volta, Turing): the "
        "power limit over it bounds the rate; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    joules_per_tflop_7nm: float = parameter(
        0.734, 0.3, 3.0, fitted_by="training time", start=1.2,
        source="the same, 7 and 8 nm class (Ampere); fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    joules_per_tflop_5nm: float = parameter(
        0.595, 0.2, 2.0, fitted_by="training time", start=1.0,
        source="the same, 5 nm class and newer (Ada, Hopper, Blackwell); fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    sustained_fp32_fraction: float = parameter(
        1.29, 0.7, 1.5, fitted_by="training time", start=1.15,
        source="32-bit products against 16-bit ones, each as a share of its own peak; fitted to published training "
        "throughputs (docs/decisions/training-accuracy.md)",
    )
    sustained_tf32_fraction: float = parameter(
        0.758, 0.7, 1.35, fitted_by="training time", start=1.0,
        source="tf32 products, as above; fitted to published training throughputs (docs/decisions/training- "
        "accuracy.md)",
    )
    sustained_fp8_fraction: float = parameter(
        1.01, 0.4, 1.5, fitted_by="training time", start=0.8,
        source="fp8 products with their casts, as above; fitted to published training throughputs "
        "(docs/decisions/training-accuracy.md)",
    )
    optimizer_memory_fraction: float = parameter(
        0.75, 0.6, 0.9,
        source="fused AdamW streams its state at memory bandwidth: judgement",
    )
    communication_overlap_fraction: float = parameter(
        0.252, 0.1, 0.97, fitted_by="training time", start=0.8,
        source="share of gradient and parameter traffic hidden behind compute by DDP and FSDP; fitted to published "
        "training throughputs together with network_peak_fraction (docs/decisions/training-accuracy.md)",
    )
    network_peak_fraction: float = parameter(
        0.517, 0.15, 0.95, fitted_by="training time", start=0.6,
        source="share of the printed network rate that collectives across nodes reach; fitted to published training "
        "throughputs; measured points are 6 to 22 GB/s on 100 to 200 Gbit/s links",
    )
    network_latency_us: float = parameter(
        40.0, 15.0, 80.0,
        source="a small message between nodes: 24 to 56 us measured (microsoft/vidur@7d475133)",
    )
    runtime_context_gib: float = parameter(
        0.8, 0.3, 1.5,
        source="CUDA context and loaded kernels, outside the framework's allocator: judgement",
    )
    collective_buffers_gib: float = parameter(
        0.7, 0.3, 1.5,
        source="NCCL channels and buffers per device, with more than one device",
    )
    training_communicator_gib: float = parameter(
        1.27, 0.2, 2.0, fitted_by="training memory", start=0.7,
        source="NCCL channels and buffers per device in training, for each kind of parallelism (data, tensor, "
        "pipeline); fitted to published peaks (docs/decisions/training-accuracy.md)",
    )
    library_workspace_gib: float = parameter(
        0.15, 0.05, 0.5,
        source="cuBLAS / cuDNN workspaces",
    )
    fragmentation_fraction: float = parameter(
        0.02, 0.02, 0.5, fitted_by="training memory", start=0.1,
        source="what the caching allocator reserves over the logits, and over activations that are made again, in use; "
        "fitted to published peaks (docs/decisions/training-accuracy.md)",
    )
    memory_margin_fraction: float = parameter(
        0.1, 0.0, 0.15,
        source="share of device memory kept free; `--memory-margin` sets it; the least with under 1 % false fits on "
        "published peaks (docs/decisions/what-fits.md)",
    )
    loss_bytes_per_logit: float = parameter(
        12.0, 8.0, 18.0,
        source="fp32 log-softmax, its gradient and that of the logits, 4 bytes each (PyTorch, nll_loss_backward and "
        "_log_softmax_backward_data); 2 or 4 more where the program holds the logits; ten peaks of transformers on an "
        "H100 say 11.9 to 12.1 (benchmarks/results)",
    )
    compiled_loss_bytes_per_logit: float = parameter(
        9.0, 6.0, 12.0,
        source="the same with a compiled loss: 7.4 measured where the whole model is compiled (benchmarks/results), "
        "10.8 where the loss is (torchtune README, with and without chunked cross entropy)",
    )
    kv_cache_memory_fraction: float = parameter(
        0.9, 0.85, 0.95,
        source="vLLM's default gpu_memory_utilization is 0.9",
    )
    target_utilisation: float = parameter(
        0.8, 0.6, 0.9,
        source="load at which a fleet is planned, so that queues stay short: judgement",
    )
    # fmt: on

    def of_precision(self, compute: str) -> float:
        """Share of its own peak that a precision's products reach, over what 16-bit products reach."""
        return float(getattr(self, f"sustained_{compute}_fraction", 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAssumptions:
    """What one vCPU takes for an item, and what of its rate is kept while all vCPUs work."""

    # fmt: off
    text_us: float = parameter(
        15.0, 5.0, 30.0,
        source="processor time of one vCPU for a text, whatever its length: tokenizers 0.23 on an AMD EPYC "
        "(benchmarks/results/host_rates_2026-11-22.csv)",
    )
    text_us_per_token: float = parameter(
        3.0, 1.3, 3.8,
        source="the same for each token: 2.2 to 3.4 by WordPiece, 3.1 to 3.7 by byte-level BPE, of texts of 14 to "
        "2,000 tokens",
    )
    picture_us: float = parameter(
        1800.0, 1000.0, 2200.0,
        source="processor time of one vCPU for a picture, whatever its size: resized to 224 x 224 and normalised in "
        "numpy, 1,700 after libjpeg-turbo and 2,000 after Pillow (benchmarks/results/host_rates_2026-11-22.csv)",
    )
    picture_us_per_megapixel: float = parameter(
        10000.0, 6500.0, 14500.0,
        source="the same for each megapixel of a JPEG of 0.6 bytes a pixel: 6,700 by libjpeg-turbo (simplejpeg, "
        "OpenCV), 14,000 by Pillow; published: photographs of ImageNet are decoded at 537 (Pillow) to 690 a second by "
        "one thread of an EPYC 9B14, 360 to 456 of a Neoverse N1 (arXiv:2605.08731)",
    )
    vcpu_share_kept: float = parameter(
        0.6, 0.35, 0.9,
        source="share of a lone process's rate that each vCPU keeps while all work, batching and the loader beside. "
        "Published: PyTorch's DataLoader with 4 or 8 workers on 16 vCPUs, which copies whole pictures between "
        "processes, reaches 0.30 to 0.55 of workers x single-thread rate (arXiv:2605.08731); two processes here kept "
        "0.9 to 1.0 of theirs. Judgement between",
    )
    read_network_fraction: float = parameter(
        0.5, 0.2, 0.9,
        source="share of the printed network rate at which items are read from object storage: judgement; the most "
        "that S3 gave 155 EC2 types was 0.5 to 0.9 of it (c5n.18xlarge 8.0 of 12.5 GB/s, p3dn.24xlarge 6.3 of 12.5; "
        "dvassallo/s3-benchmark, 2019)",
    )
    # fmt: on


# 80 % intervals. Training: quantiles of measured over predicted step time (763 published runs of language models, V100
# to H100; as `calibration.intervals` takes them for a new family) and 10th and 90th percentile of peak memory (99
# readings), each family judged by a fit that has not seen it (docs/decisions/training-accuracy.md). The others are
# judgements.
TRAINING_TIME_SPREAD: Final = Spread(low_factor=0.82, high_factor=1.24)
TRAINING_MEMORY_SPREAD: Final = Spread(low_factor=0.71, high_factor=1.15)
# Of the host's time for a launch, on a host that is not known: 10th and 90th percentile of what 36 steps on two rented
# machines took, each machine half of the weight, over what is assumed: 37 and 82 of 55 us (see
# `training_launch_us_per_kernel`).
HOST_SPREAD: Final = Spread(low_factor=0.67, high_factor=1.5)
INFERENCE_TIME_SPREAD: Final = Spread(low_factor=0.75, high_factor=1.40)
INFERENCE_MEMORY_SPREAD: Final = Spread(low_factor=0.92, high_factor=1.10)


def unfitted() -> Assumptions:
    """The assumptions as they stood before any fit: judgements alone."""
    begun = {one.name: one.start for one in listed(Assumptions()) if one.start is not None}
    return replace(Assumptions(), **begun)


def fitted_parameters(fitted_by: FittedBy) -> tuple[Assumption, ...]:
    """The parameters that a fit sets, at the values the library ships with."""
    return tuple(one for one in listed(Assumptions()) if one.fitted_by == fitted_by)
