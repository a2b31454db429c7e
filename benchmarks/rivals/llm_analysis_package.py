"""The package llm-analysis: FLOP over a share of the peak that its user states; 0.5 here, its own example's figure."""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row, degree, number, number_or, training_rate

TABLE = "training"
EFFICIENCY = 0.5
GPUS = {
    "A100-80GB-SXM": "a100-sxm-80gb", "A100-40GB-SXM": "a100-sxm-40gb", "A100-80GB-PCIe": "a100-pcie-80gb",
    "A100-40GB-PCIe": "a100-pcie-40gb", "H100-80GB-SXM": "h100-sxm-80gb", "H100-80GB-PCIe": "h100-pcie-80gb",
    "V100-16GB": "v100-sxm-16gb", "V100-32GB": "v100-sxm-32gb", "RTXA6000": "a6000-48gb",
}  # fmt: skip


def predict(row: Row) -> Answer:
    """`LLMAnalysis.training` for one micro-batch; no metric of memory is asked, since its batch limit is lifted."""
    from llm_analysis.analysis import ActivationRecomputation, LLMAnalysis
    from llm_analysis.config import ModelConfig, ParallelismConfig, get_gpu_config_by_name

    if row["gpu"] not in GPUS:
        raise Declined("GPU not among its configurations")
    if row["precision"] not in ("fp16", "bf16"):
        raise Declined("knows 16-bit training only")
    width, length = int(number(row, "d_model")), int(number(row, "seq_len"))
    model = ModelConfig(
        name="row", num_layers=int(number(row, "n_layers")), n_head=int(number(row, "n_heads")), hidden_dim=width,
        vocab_size=int(number_or(row, "vocab", 50257)), max_seq_len=length, ffn_embed_dim=int(number(row, "d_ff")),
        num_key_value_heads=int(number_or(row, "n_kv_heads", number(row, "n_heads"))),
        expansion_ratio=number(row, "d_ff") / width,
    )  # fmt: skip
    tensor, pipeline = degree(row, "tp"), degree(row, "pp")
    gpu = get_gpu_config_by_name(GPUS[row["gpu"]])
    gpu.mem_per_GPU_in_GB = 1e6
    recompute = {"full": ActivationRecomputation.FULL, "selective": ActivationRecomputation.SELECTIVE}
    micro_batch = int(number(row, "micro_batch_per_gpu"))
    found = LLMAnalysis(
        model, gpu, flops_efficiency=EFFICIENCY,
        parallelism_config=ParallelismConfig(tp_size=tensor, pp_size=pipeline, dp_size=1),
    ).training(
        batch_size_per_gpu=micro_batch, gradient_accumulation_steps=1, seq_len=length,
        activation_recomputation=recompute.get(row["activation_checkpointing"], ActivationRecomputation.NONE),
    )  # fmt: skip
    return training_rate(row, micro_batch * length / found["latency_per_iter"] / (tensor * pipeline)), ""
