"""Sources of measured training rows: which program ran and how it was set, as each source documents it.

One entry a source; each says what it holdss scripts or papers, never what would fit its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tonnage.calibration.rows import TrainingRow

Facts = Mapping[str, Any]
NOTHING: Final[Facts] = MappingProxyType({})


def documented_facts(row: TrainingRow) -> Facts:
    """Column -> value of what the row's source documents; empty for a source that is not known."""
    reader = SOURCES.get(row.source_group)
    return NOTHING if reader is None else reader(row)


def _nvidia_examples(row: TrainingRow) -> Facts:
    """NVIDIA/DeepLearningExamples@729963d. Image classifiers in PyTorch: `memory_format: nhwc` under AMP
    (PyTorch/Classification/ConvNets/configs.yml). MXNet: `--fuse-bn-relu 1 --fuse-bn-add-relu 1` with NHWC
    (MxNet/Classification/RN50v1.5/fit.py)."""
    if "/ConvNets/" in row.source and row.source.split(":")[-1].startswith("PyTorch") and row.precision == "fp16":
        return {"channels_last": "y"}
    return {"kernels": "fused"} if ":MxNet/" in row.source else NOTHING


def _bigscience(_: TrainingRow) -> Facts:
    """Jean Zay's A100 partition: four 100 Gbit/s Omni-Path ports an eight-GPU node (bigscience train/tr11-176B-ml)."""
    return {"network_gbit_per_s_per_node": 400.0}


def _dlperf(_: TrainingRow) -> Facts:
    """DLPerf's GPT report: both programs recompute activations, and TFLOP/s count four passes
    (OneFlow LanguageModeling/GPT: `--checkpoint-activations`)."""
    return {"activation_checkpointing": "full", "flop_counted": "hardware"}


def _megatron_papers(row: TrainingRow) -> Facts:
    """Narayanan et al. 2021 (arXiv:2104.04473) and Korthikanti et al. 2022 (arXiv:2205.05198): Megatron-LM, which had
    no fused attention then; sequence parallelism came with selective recomputation. What the first compares with is
    DeepSpeed's ZeRO-3 of April 2021 (section 5.2), version 0.3."""
    facts = {"program": "megatron", "program_version": "3.0", "attention": "eager", "checkpoint_kind": "scores"}
    if "zero3" in row.sharding:
        facts |= {"program": "megatron-deepspeed", "program_version": "0.3"}
    return {**facts, "sequence_parallel": "y"} if row.activation_checkpointing == "selective" else facts


def _model_cards(row: TrainingRow) -> Facts:
    """TinyLlama (jzhang38/TinyLlama README): on lit-gpt, with FlashAttention-2 and its fused layer norm, SwiGLU, rotary
    and cross entropy kernels."""
    if row.model.startswith("TinyLlama"):
        return {"program": "litgpt", "kernels": "fused", "loss": "fused", "attention": "flash"}
    return NOTHING


def _torchtune(row: TrainingRow) -> Facts:
    """Llama 2 was documented with 0.1. The table of optimization flags adds one technique a line, to AdamW on
    `torch.nn.CrossEntropyLoss`: a chunked loss before checkpointing, the step in backward before offload. 70B_full.yaml
    offloads to the CPU and sets `custom_sharded_layers: ['tok_embeddings', 'output']`."""
    version = {"program_version": "0.1" if row.model.startswith("Llama-2-") else "0.3"}
    if row.method == "full" and "offload" in row.sharding:
        version["tables_apart"] = "y"
    if "optimization flags" not in row.source:
        return version
    stepped = row.method == "full" and "offload" in row.activation_checkpointing
    loss = "plain" if row.activation_checkpointing == "none" else "chunked"
    return {**version, "optimizer": "AdamW", "loss": loss, "optimizer_in_backward": "y" if stepped else "n"}


SOURCES: Final[Mapping[str, Callable[[TrainingRow], Facts]]] = MappingProxyType(
    {
        "NVIDIA-DLE": _nvidia_examples,
        "BigScience": _bigscience,
        "DLPerf": _dlperf,
        "Megatron-papers": _megatron_papers,
        "model-cards": _model_cards,
        "torchtune": _torchtune,
    }
)
