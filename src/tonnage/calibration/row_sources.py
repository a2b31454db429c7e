"""Sources of measured training rows: which program ran and how it was set, as each source documents it.

One entry a source; each says what it holdss scripts or papers, never what would fit its figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tonnage.calibration.note_words import NoteWords, stated_anywhere, words
from tonnage.calibration.rows import TrainingRow

Facts = Mapping[str, Any]
NOTHING: Final[Facts] = MappingProxyType({})


def words_of_source(row: TrainingRow) -> Facts:
    """Column -> value of what the tables of a known source state in their own words; empty for any other."""
    return stated_anywhere(row.note, SOURCE_WORDS.get(row.source_group, ()))


def documented_facts(row: TrainingRow) -> Facts:
    """Column -> value of what the row's source documents; empty for a source that is not known."""
    reader = SOURCES.get(row.source_group)
    return NOTHING if reader is None else reader(row)


def corrected_facts(row: TrainingRow) -> Facts:
    """Column -> value where the scripts of a row's source show its cell to be otherwise.

    ELECTRA in TensorFlow 2 is fine-tuned with `--xla` under AMP alone (NVIDIA/DeepLearningExamples@729963d,
    TensorFlow2/LanguageModeling/ELECTRA/scripts/run_squad.sh: `use_fp16=" --amp --xla "`)."""
    electra = "TensorFlow2/LanguageModeling/ELECTRA" in row.source and row.objective == "classification"
    return {"compile": "n"} if electra and row.precision != "fp16" else NOTHING


def _nvidia_examples(row: TrainingRow) -> Facts:
    """NVIDIA/DeepLearningExamples@729963d. Image classifiers in PyTorch: `memory_format: nhwc` under AMP
    (PyTorch/Classification/ConvNets/configs.yml). MXNet: `--fuse-bn-relu 1 --fuse-bn-add-relu 1` with NHWC
    (MxNet/Classification/RN50v1.5/fit.py), which cuDNN has in 16 bit alone (cudnnBatchNormOps_t). PaddlePaddle:
    `fuse_bn_act_ops`, `fuse_bn_add_act_ops` under AMP (PaddlePaddle/Classification/RN50v1.5/program.py). Transformer-XL
    in PyTorch: see `_transformer_xl`, BART `_bart`; in TensorFlow it steps by LAMB (tf/main.py). TensorFlow's BERT and
    ELECTRA compile with XLA (`use_xla`, `xla` true in their scripts/run_pretraining*.sh, run_squad.sh and configs).
    Paddle pre-trains BERT under AMP with cuDNN's fused attention (scripts/run_pretraining.sh: `--fuse-mha`; that table
    came with the commit that brought it, the one of SQuAD is older)."""
    folder = row.source.split(":")[-1]
    if folder.startswith(("TensorFlow/LanguageModeling/BERT", "TensorFlow2/LanguageModeling/")):
        return {"compile": "y"}
    if folder.startswith("TensorFlow/LanguageModeling/Transformer-XL"):
        return {"optimizer": "LAMB", **_clusters(row)}
    if folder.startswith("PyTorch/LanguageModeling/Transformer-XL"):
        return {**_transformer_xl(row), **_clusters(row)}
    if folder.startswith("PyTorch/LanguageModeling/BART"):
        return _bart(row)
    if row.precision != "fp16":
        return NOTHING
    if folder.startswith("PaddlePaddle/LanguageModeling/BERT"):
        return NOTHING if row.objective == "classification" else {"attention": "flash"}
    if folder.startswith(("MxNet/", "PaddlePaddle/Classification")):
        return {"kernels": "fused"}
    return {"channels_last": "y"} if "/ConvNets/" in row.source and folder.startswith("PyTorch") else NOTHING


def _clusters(row: TrainingRow) -> dict[str, Any]:
    """All clusters of words share one table in the base configuration (`adaptive: true`, `div_val: 1` of
    wt103_base.yaml); the large one has narrower tables for rare words (`div_val: 4`), which nothing here describes."""
    return {"softmax": "adaptive"} if row.model.endswith("base") else {}


def _transformer_xl(row: TrainingRow) -> dict[str, Any]:
    """NVIDIA's Transformer-XL in PyTorch: `optim: jitlamb`, which steps tensors one by one (pytorch/wt103_base.yaml,
    lamb.py); in fp16 `apex_amp_opt_level` O2 casts the model, and `F.log_softmax` stays in 16 bit (train.py,
    utils/proj_adaptive_softmax.py)."""
    facts = {"optimizer": "LAMB", "optimizer_fused": "n"}
    return {**facts, "state": "cast-model", "loss": "half"} if row.precision == "fp16" else facts


def _bart(row: TrainingRow) -> Facts:
    """NVIDIA's BART in PyTorch pre-trains with batches of 64,000 and, of 512 tokens, 30,720 sequences (README), a fused
    LAMB (training_base.py, FusedMixedPrecisionLamb) and `--allreduce_post_accumulation_half_precision` (scripts/
    run_pretraining_phase1.sh, phase2.sh), which casts the model in place of autocast (pretrain.py:
    `trainer.model.bfloat16()`), so that the loss reads 16-bit logits too. Fine-tuning is under autocast."""
    if row.objective != "language-model":
        return NOTHING
    facts = {"optimizer": "LAMB", "optimizer_fused": "y", "global_batch": BART_BATCHES.get(row.seq_len or 0)}
    return facts if row.precision == "tf32" else {**facts, "state": "cast-model", "loss": "half"}


BART_BATCHES: Final[Mapping[int, int]] = MappingProxyType({128: 64_000, 512: 30_720})


def _lambda(row: TrainingRow) -> Facts:
    """lambdal/deeplearning-benchmark: NVIDIA's scripts under `NCCL_P2P_DISABLE=1` (pytorch/scripts/
    benchmark_pytorch.sh), with the batches of config_v1/config_pytorch_16GB.sh to 80GB.sh. Transformer-XL without
    `--adaptive`, which is a softmax over all words, and without `--multi_gpu`, which leaves each process its own
    gradients."""
    found: dict[str, Any] = {"peer_to_peer": "n"}
    if row.model.startswith("TransformerXL"):
        found |= {"vocab": WIKITEXT_WORDS, "exchanges": "n", **_transformer_xl(row)}
    size = re.search(r"(\d+)GB", row.gpu)
    memory = int(size[1]) if size else LAMBDA_MEMORY.get(row.gpu)
    batch = LAMBDA_BATCHES.get((row.model, row.precision == "fp16"), {}).get(memory or 0)
    return found if batch is None else {**found, "micro_batch_per_gpu": batch}


WIKITEXT_WORDS: Final = 267_735  # of WikiText-103 (Merity et al. 2016, arXiv:1609.07843)
LAMBDA_MEMORY: Final = {"A10": 24, "RTX3090": 24, "RTX4090": 24, "RTXA6000": 48, "RTX6000Ada": 48}
# Sequences or images a GPU by its memory (GB), in 16 bit or not.
LAMBDA_BATCHES: Final[Mapping[tuple[str, bool], Mapping[int, int]]] = MappingProxyType(
    {
        ("TransformerXL-base", True): {16: 12, 24: 24, 48: 64, 80: 104},
        ("TransformerXL-base", False): {16: 8, 24: 14, 48: 32, 80: 52},
        ("BERT-base", True): {16: 48, 24: 96, 48: 192, 80: 320},
        ("BERT-base", False): {16: 24, 24: 48, 48: 96, 80: 172},
        ("BERT-large", True): {16: 16, 24: 28, 48: 64, 80: 112},
        ("BERT-large", False): {16: 8, 24: 16, 48: 32, 80: 64},
        ("resnet50", True): {16: 256, 24: 448, 48: 928, 80: 1280},
        ("resnet50", False): {16: 128, 24: 224, 48: 496, 80: 640},
    }
)


def _bigscience(_: TrainingRow) -> Facts:
    """Jean Zay's A100 partition: four 100 Gbit/s Omni-Path ports an eight-GPU node (bigscience train/tr11-176B-ml).
    DeepSpeed is the branch `olruwase/bf16-updates` (its README.md, «Packages») in trials of February and March 2022: by
    judgement 0.6, the release of these months."""
    return {"program_version": "0.6", "network_gbit_per_s_per_node": 400.0}


def _dlperf(row: TrainingRow) -> Facts:
    """DLPerf's GPT report: both programs recompute activations, and TFLOP/s count four passes
    (OneFlow LanguageModeling/GPT: `--checkpoint-activations`). Megatron-LM is commit 8aa4619f (Megatron-LM/README.md,
    first paragraph), of 2021: by judgement 2.4; what counts is that it is before 3.0."""
    found = {"activation_checkpointing": "full", "flop_counted": "hardware"}
    return {"program_version": "2.4", **found} if row.program == "megatron" else found


def _megatron_papers(row: TrainingRow) -> Facts:
    """Narayanan et al. 2021 (arXiv:2104.04473) and Korthikanti et al. 2022 (arXiv:2205.05198): Megatron-LM, which had
    no fused attention then; sequence parallelism came with selective recomputation, in version 3.0, and what is older
    is read as 2.0, the release with pipelines (judgement by the papers' dates). What the first compares with is
    DeepSpeed's ZeRO-3 of April 2021 (section 5.2), version 0.3."""
    version = "3.0" if "2205.05198" in row.source else "2.0"
    facts = {"program": "megatron", "program_version": version, "attention": "eager", "checkpoint_kind": "scores"}
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


def _nemo(row: TrainingRow) -> Facts:
    """Fine-tuning of NVIDIA/NeMo docs/source/performance/performance_summary.md: SQuAD 1.1, packed into sequences whose
    documents attend to themselves alone (`packed_sequence`, NeMo user guide)."""
    return {"document_tokens": SQUAD_TOKENS} if row.objective == "classification" else NOTHING


# A paragraph and a question of SQuAD, 117 and 10 words in the mean (Rajpurkar et al. 2016, arXiv:1606.05250), in
# sub-words. Judgement, 150 to 250: whichever it is, next to nothing of 4,096 tokens is left to attend to.
SQUAD_TOKENS: Final = 200

SOURCES: Final[Mapping[str, Callable[[TrainingRow], Facts]]] = MappingProxyType(
    {
        "NVIDIA-DLE": _nvidia_examples,
        "BigScience": _bigscience,
        "DLPerf": _dlperf,
        "Megatron-papers": _megatron_papers,
        "model-cards": _model_cards,
        "torchtune": _torchtune,
        "Lambda-benchmark": _lambda,
        "NeMo": _nemo,
    }
)

# In which words the tables of a source print a column.
SOURCE_WORDS: Final[Mapping[str, tuple[NoteWords, ...]]] = MappingProxyType(
    {
        "NVIDIA-DLE": (
            words("objective", r"pre-train", "language-model"),
            words("objective", r"fine-tun|squad", "classification"),
            words("channels_last", r"\bNHWC\b", "y"),
            words("cached_tokens", r"mem_len=(\d+)"),
            words("target_tokens", r"target (\d+)"),
            words("batch_tokens", r"batch is (\d+) tokens"),
        ),
        "Lambda-benchmark": (words("objective", r"squad fine-tune", "classification"),),
        "DLPerf": (words("program", r"OneFlow-GPT", "oneflow"),),
        "Megatron-papers": (
            words("vocab", r"vocab (\d+)"),
            words("flop_counted", r"\bHFU\b", "hardware"),
        ),
        "torchtune": (
            words("adapter_targets", r"LoRA on all", "all-linear"),
            words("adapter_targets", r"LoRA on q, ?v", "attention"),
        ),
        "NeMo": (words("objective", r"fine-tuning packed", "classification"),),
        "tonnage-models": (words("adapter_targets", r"LoRA r=\d+ on all linear", "all-linear"),),
        "unsloth": (words("attention", r"\bFA2\b|FlashAttention-2", "flash"),),
        "JAX-Toolbox": (
            words("kernels", r"transformer engine", "fused"),
            words("attention", r"transformer engine", "flash"),
        ),
        "HF-PEFT": (words("program", r"DeepSpeed ZeRO", "deepspeed"),),
    }
)
