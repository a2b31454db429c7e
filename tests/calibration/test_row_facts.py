"""What a row's program did comes from its columns, its note's named programs, and its source's documents."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.calibration.kinds import kind_named, rows_to_fit
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.row_facts import with_facts
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_case import build_case
from tonnage.calibration.training_judge import judge_training
from tonnage.calibration.training_memory_rows import reading_of
from tonnage.calibration.training_methods import adapters_of, precision_of
from tonnage.catalog import Catalog
from tonnage.workload.jobs import TrainPrecision

Row = Callable[..., TrainingRow]
FACTS = Path(os.environ.get("TONNAGE_FACTS", "nowhere")) / "training_calibration.csv"


@pytest.mark.parametrize(
    ("note", "source", "program"),
    [
        ("NeMo 24.07; Megatron-LM", "", "nemo"),  # the trainer, not what it is built on
        ("Hugging Face + FlashAttention-2 baseline", "unslothai/unsloth@1:README.md", "transformers"),
        ("LAMB; the rate is >2x the TF2 one on the same GPU", "x@1:PyTorch/BERT/README.md", "pytorch"),  # a comparison
        ("TF2, XLA", "", "tensorflow"),
        ("TF32, sparsity off", "", ""),  # a number format
        ("batch from repo configs.yml", "", ""),  # a remark
        ("", "pytorch/torchtitan@abc:docs/performance.md", "torchtitan"),
        ("Lit-GPT, micro batch 4", "", "litgpt"),
        ("slower than torchtune would be", "", ""),  # a remark
    ],
)
def test_programs_are_named(row: Row, note: str, source: str, program: str) -> None:
    """A program is what the note names, else the repository the row comes from; a remark names none."""
    assert with_facts(row(note=note, source=source, source_group="")).program == program


FEATURES: list[tuple[str, dict[str, Any]]] = [
    (
        "loss=chunked; channels_last=y; cached_tokens=640",
        {"loss": "chunked", "channels_last": "y", "cached_tokens": 640},
    ),
    ("fused layernorm, fused CE", {"kernels": "fused", "loss": "fused"}),
    ("+ chunked cross entropy", {"loss": "chunked"}),
    ("transformers 4.31, PyTorch 2.1", {"program": "transformers", "program_version": "4.31"}),
    ("8xH100, 400 Gb/s per GPU", {"network_gbit_per_s_per_gpu": 400.0, "network_gbit_per_s_per_node": None}),
    ("100Gb/s IB", {"network_gbit_per_s_per_gpu": None, "network_gbit_per_s_per_node": 100.0}),
    ("8x400 Gbps RoCE", {"network_gbit_per_s_per_node": 3200.0}),
    ("H100 nodes; per GPU one 400 Gb/s port", {"network_gbit_per_s_per_gpu": 400.0}),
    ("InfiniBand NDR 400Gbps/GPU", {"network_gbit_per_s_per_gpu": 400.0}),
    ("EFA 3.2 Tbps", {"network_gbit_per_s_per_node": 3200.0}),
    ("100Gb/s IB; 49.4 TFLOP/s/GPU", {"network_gbit_per_s_per_node": 100.0}),
    ("300 TFLOP/s per GPU, 100Gb/s IB", {"network_gbit_per_s_per_node": 100.0}),
    ("SQuAD fine-tune", {"objective": "classification"}),
    ("no chunked loss; HFU not stated; as image 224 of x", {"loss": "", "flop_counted": "", "image_side": None}),
    ("HFU 57%; chunked cross entropy loss", {"flop_counted": "hardware", "loss": "chunked"}),
    ("57.7 % HFU, NHWC layout", {"flop_counted": "hardware", "channels_last": "y"}),
    ("with Liger kernels", {"kernels": "fused", "loss": "fused"}),
    ("fused layernorm/swiglu/CE/rotary", {"kernels": "fused", "loss": "fused"}),
    ("Flash Attention v2; SQuAD v1.1 fine-tuning", {"attention": "flash", "objective": "classification"}),
    ("LoRA on q, v; bf16", {"adapter_targets": "attention"}),
    ("LoRA r=8 on q,v", {"adapter_targets": "attention"}),
    ("LoRA on all layers incl. mlp+output", {"adapter_targets": "all-linear"}),
    ("MXNet NHWC", {"program": "mxnet", "channels_last": "y"}),
    ("JAX/Paxml 23.08, long-sequence pre-training", {"program_version": "23.08", "objective": "language-model"}),
    ("no pre-training; HFU is not printed; 57 % MFU", {"objective": "", "flop_counted": ""}),
    ("image 224; SDPA", {"image_side": 224, "attention": "sdpa"}),
    ("batch from repo configs.yml (not in table); DGX-H100", {"channels_last": "", "kernels": "", "attention": ""}),
]


@pytest.mark.parametrize(("note", "expected"), FEATURES)
def test_notes_name_features(row: Row, note: str, expected: dict[str, Any]) -> None:
    """`key=value` and clauses that name a feature and nothing else fill blank columns; other words fill none."""
    found = with_facts(row(note=note, attention="", source="", source_group=""))
    assert {name: getattr(found, name) for name in expected} == expected


def test_columns_of_a_file_win(row: Row) -> None:
    """A stated cell stays, whatever the note names."""
    found = with_facts(row(note="Megatron-LM, chunked loss", program="torchtitan", loss="plain"))
    assert (found.program, found.loss) == ("torchtitan", "plain")


def test_cells_that_the_scripts_contradict_are_put_right(row: Row) -> None:
    """ELECTRA in TensorFlow 2 is fine-tuned with XLA under AMP alone, whatever a table says."""
    source = "NVIDIA/DeepLearningExamples@1:TensorFlow2/LanguageModeling/ELECTRA/README.md"

    def compiled(precision: str, note: str) -> str:
        cells = {"compile": "y", "source": source, "source_group": "NVIDIA-DLE", "precision": precision}
        return with_facts(row(**cells, note=note)).compile

    assert compiled("tf32", "SQuAD fine-tune; TF2+XLA") == compiled("fp32", "SQuAD fine-tune") == "n"
    assert compiled("fp16", "SQuAD fine-tune; TF2+XLA") == compiled("tf32", "pre-training, TF2+XLA") == "y"


def test_measured_adapters_are_on_all_linear_layers(row: Row) -> None:
    """As the notes of `benchmarks/gpu_models.py` say; not known, they would be on attention alone."""
    note = "HF transformers 5.17.0; peft 0.21.0; LoRA r=16 on all linear layers, bf16 base"
    assert with_facts(row(source_group="tonnage-models", note=note)).adapter_targets == "all-linear"


@pytest.mark.parametrize(("note", "tokens"), [("SQuAD fine-tuning packed to 4096", 200), ("pre-training", None)])
def test_nemo_packs_documents_for_fine_tuning(row: Row, note: str, tokens: int | None) -> None:
    """What is packed attends to itself alone; pre-training reads whole sequences."""
    filled = with_facts(row(source_group="NeMo", note=note))
    assert filled.document_tokens == tokens


MXNET = "NVIDIA/DeepLearningExamples@1:MxNet/Classification/RN50v1.5/README.md"
PADDLE_BERT = "NVIDIA/DeepLearningExamples@1:PaddlePaddle/LanguageModeling/BERT/README.md"
TENSORFLOW_BERT = "NVIDIA/DeepLearningExamples@1:TensorFlow2/LanguageModeling/BERT/README.md"
BART: dict[str, Any] = {
    "source_group": "NVIDIA-DLE",
    "source": "NVIDIA/DeepLearningExamples@1:PyTorch/LanguageModeling/BART/README.md",
    "global_batch": None,
}
TRANSFORMER_XL = "NVIDIA/DeepLearningExamples@1:PyTorch/LanguageModeling/Transformer-XL/README.md"
DOCUMENTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"source_group": "Lambda-benchmark", "model": "TransformerXL-base", "gpu": "V100-16GB", "precision": "fp32"},
        {"vocab": 267_735, "softmax": "", "exchanges": "n", "peer_to_peer": "n", "micro_batch_per_gpu": 8, "state": ""},
    ),
    (
        {"source_group": "Lambda-benchmark", "model": "BERT-base", "gpu": "RTX6000Ada", "precision": "tf32"},
        {"vocab": None, "exchanges": "", "peer_to_peer": "n", "micro_batch_per_gpu": 96},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": MXNET, "precision": "tf32"},
        {"kernels": "", "channels_last": ""},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": PADDLE_BERT, "precision": "fp16", "objective": "language-model"},
        {"attention": "flash", "compile": ""},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": PADDLE_BERT, "precision": "fp16", "objective": "classification"},
        {"attention": ""},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": PADDLE_BERT, "precision": "tf32", "objective": "language-model"},
        {"attention": ""},
    ),
    (
        {"source_group": "Megatron-papers", "source": "arXiv 2104.04473 Table 1", "sharding": "tp=8"},
        {"program": "megatron", "program_version": "2.0", "attention": "eager"},
    ),
    (
        {"source_group": "Megatron-papers", "source": "arXiv 2205.05198 Table 5", "sharding": "tp=8"},
        {"program": "megatron", "program_version": "3.0"},
    ),
    (
        {**BART, "precision": "bf16", "objective": "language-model", "seq_len": 512},
        {"optimizer": "LAMB", "optimizer_fused": "y", "state": "cast-model", "loss": "half", "global_batch": 30_720},
    ),
    (
        {**BART, "precision": "tf32", "objective": "language-model", "seq_len": 128},
        {"optimizer": "LAMB", "state": "", "loss": "", "global_batch": 64_000},
    ),
    (
        {**BART, "precision": "bf16", "objective": "classification"},
        {"optimizer": "", "state": "", "global_batch": None},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": TENSORFLOW_BERT, "precision": "tf32"},
        {"compile": "y", "program": "tensorflow"},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": TRANSFORMER_XL, "model": "TransformerXL-base", "precision": "fp16"},
        {"optimizer": "LAMB", "optimizer_fused": "n", "state": "cast-model", "loss": "half", "softmax": "adaptive"},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": TRANSFORMER_XL, "model": "TransformerXL-base", "precision": "tf32"},
        {"optimizer": "LAMB", "optimizer_fused": "n", "state": "", "loss": ""},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": TRANSFORMER_XL, "model": "TransformerXL-large", "precision": "tf32"},
        {"optimizer": "LAMB", "softmax": ""},
    ),
    (
        {"source_group": "NVIDIA-DLE", "source": MXNET, "precision": "fp16"},
        {"kernels": "fused", "channels_last": ""},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "expected"), DOCUMENTED)
def test_sources_fill_what_their_scripts_say(row: Row, cells: dict[str, Any], expected: dict[str, Any]) -> None:
    """Batches, the whole vocabulary, and processes that exchange nothing, as each source's scripts have them."""
    blank = {"note": "", "vocab": None, "micro_batch_per_gpu": None, "optimizer": "", "attention": "", "compile": ""}
    found = with_facts(row(**{**blank, **cells}))
    assert {name: getattr(found, name) for name in expected} == expected


def test_an_adaptive_softmax_has_rare_words_and_the_whole_vocabulary_has_none(row: Row, catalog: Catalog) -> None:
    """A softmax over clusters of words has those beyond its head; over all words, or where none is stated, it has
    none: the name of a model does not say it."""
    cells = {"n_layers": 16, "d_model": 512, "n_heads": 8, "n_kv_heads": 8, "d_ff": 2048, "seq_len": 192,
             "model": "TransformerXL-base", "family": "TransformerXL-base", "params": None}  # fmt: skip
    clusters = build_case(row(**cells, vocab=None, softmax="adaptive"), catalog)
    unstated = build_case(row(**cells, vocab=None), catalog)
    whole = build_case(row(**cells, vocab=267_735), catalog)
    assert sum(words for _, words in clusters.trainer.rare_words) + clusters.jobs[0].model.vocab == 267_735
    assert whole.trainer.rare_words == unstated.trainer.rare_words == ()


def test_gpus_that_do_not_talk_directly_meet_over_their_host(row: Row, catalog: Catalog) -> None:
    """Eight A100 on NVSwitch without peer-to-peer transfers exchange at the rate of PCIe."""
    direct = build_case(row(gpu="A100-80GB-SXM", n_gpus=8, gpus_per_node=8), catalog)
    apart = build_case(row(gpu="A100-80GB-SXM", n_gpus=8, gpus_per_node=8, peer_to_peer="n"), catalog)
    names = [case.machine.intra.name if case.machine.intra else "" for case in (direct, apart)]
    assert names == ["nvlink3", "pcie4"]


def test_filling_twice_changes_nothing(row: Row) -> None:
    """A filled row is its own filling."""
    once = with_facts(row(note="torchtune, image 224", source_group="torchtune"))
    assert with_facts(once) == once


@pytest.mark.facts
@pytest.mark.skipif(not FACTS.exists(), reason="needs the measured facts")
def test_no_prediction_reads_a_note_or_a_source(catalog: Catalog) -> None:
    """Rows whose note, source and source group are blanked once they are filled are predicted the same."""
    rows, _ = rows_to_fit(kind_named("training"), FACTS, catalog)
    blank = [replace(row, note="", source="", source_group="") for row in rows]
    told, silent = judge_training(rows, catalog), judge_training(blank, catalog)
    judged = [[replace(one, source="") for one in found if isinstance(one, JudgedRow)] for found in (told, silent)]
    assert judged[0] == judged[1]


METHODS: list[tuple[str, str, tuple[str, str, int | None] | None]] = [
    ("full", "bf16", ("full", "lora", None)),
    ("lora r=8", "bf16-true", ("lora", "lora", 8)),
    ("lora", "bnb.nf4", ("qlora", "lora", None)),
    ("qlora r=32", "nf4 base", ("qlora", "lora", 32)),
    ("dora rank 16", "bf16", ("lora", "dora", 16)),
    ("adapter", "bf16-true", ("lora", "llama-adapter", None)),
    ("adapter_v2", "bf16-true", ("lora", "llama-adapter-v2", None)),
    ("prefix tuning", "bf16", ("lora", "prefix", None)),
    ("prompt-tuning", "bf16", ("lora", "prompt", None)),
    ("ia3", "bf16", None),
    ("adalora", "bf16", None),
    ("lora-fa", "bf16", None),
]


@pytest.mark.parametrize(("method", "precision", "expected"), METHODS)
def test_methods(method: str, precision: str, expected: tuple[str, str, int | None] | None) -> None:
    """Every kind of adapter is told from full training; a kind that is not sized is none."""
    found = adapters_of(method, precision)
    assert (None if found is None else (found.method, found.kind, found.rank)) == expected


@pytest.mark.parametrize(
    ("text", "method", "bf16", "true", "expected"),
    [
        ("bf16-mixed", "lora", True, False, "bf16"),  # stated as mixed: an fp32 base
        ("bf16", "lora", True, False, "bf16-true"),
        ("bf16", "full", True, False, "bf16"),
        ("bf16", "full", True, True, "bf16-true"),
        ("bf16", "full", False, False, "fp16"),
        ("32-true", "full", True, True, "fp32"),
        ("bf16-true + nf4", "lora", True, False, "bf16-true"),
        ("int8", "full", True, False, None),
    ],
)
def test_precisions(text: str, method: Any, bf16: bool, true: bool, expected: TrainPrecision | None) -> None:
    """Mixed and true 16 bit are kept apart as stated; plain bf16 is what the program means by it."""
    assert precision_of(text, method, bf16=bf16, true=true) == expected


def test_blank_recomputation_is_what_the_program_documents(row: Row, catalog: Catalog) -> None:
    """QLoRA with a blank column: recomputed where PEFT prepares the model, not where the program does no such thing."""
    blank = {"method": "qlora", "activation_checkpointing": "", "n_gpus": 1, "sharding": "none"}
    found = {
        program: build_case(row(**blank, program=program), catalog).jobs[0].recompute
        for program in ("transformers", "litgpt", "torchtune", "")
    }
    assert found == {"transformers": "full", "litgpt": "none", "torchtune": "full", "": "none"}


def test_adapters_are_newer_than_fused_attention(row: Row, catalog: Catalog) -> None:
    """A decoder on A100 with adapters does not store scores, though it is neither gated nor rotary; all weights of the
    same model, trained by nobody knows what, may have."""
    found = [build_case(row(attention="", method=method), catalog).jobs[0].attention for method in ("lora", "full")]
    assert found == ["sdpa", "eager"]


def test_each_part_of_offload_has_its_own_cell(row: Row, catalog: Catalog) -> None:
    """A stated optimizer says nothing of activations: what the program documents of these stays."""
    cells = {"method": "qlora", "program": "unsloth", "n_gpus": 1, "sharding": "", "activation_checkpointing": ""}
    found = {
        text: build_case(row(**cells, optimizer=text), catalog).program.offload
        for text in ("", "adamw_8bit", "paged_adamw_8bit")
    }
    assert found == {
        "": ("activations",), "adamw_8bit": ("activations",), "paged_adamw_8bit": ("optimizer", "activations"),
    }  # fmt: skip
    stated = build_case(row(**{**cells, "activation_checkpointing": "full"}), catalog).program.offload
    assert stated == ()


@pytest.mark.parametrize(
    ("mem_kind", "program", "reading"),
    [
        ("nvidia-smi", "litgpt", "device"),
        ("NVML", "", "device"),
        ("max_memory_allocated", "torchtitan", "allocated"),
        ("max_memory_reserved", "litgpt", "reserved"),
        ("", "litgpt", "allocated"),
        ("", "torchtitan", "reserved"),
        ("", "", "reserved"),
    ],
)
def test_a_reading_is_as_stated_else_as_the_program_logs_it(
    row: Row, mem_kind: str, program: str, reading: str
) -> None:
    """A stated tool decides; where none is, the log of the program that is named."""
    assert reading_of(row(mem_kind=mem_kind, program=program)) == reading


def test_a_source_that_is_documented_goes_before_the_words_of_its_name(row: Row) -> None:
    """The ZeRO-3 runs of Narayanan et al. 2021 are DeepSpeed's, although the path they were copied from says Megatron;
    a program that the note names stays."""
    copied = {"source": "arXiv 2104.04473 (examples/megatron-lm)", "source_group": "Megatron-papers"}
    theirs, own, named = (
        with_facts(row(**copied, sharding="zero3,dp=384")),
        with_facts(row(**copied, sharding="tp=8,dp=4")),
        with_facts(row(**copied, sharding="zero3,dp=384", note="NeMo")),
    )
    assert (theirs.program, theirs.program_version) == ("megatron-deepspeed", "0.3")
    assert (own.program, named.program) == ("megatron", "nemo")
