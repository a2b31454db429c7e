"""Sources of measured inference rows: how each documents that its figures were taken.

One entry a source; each says what its scripts and rules do, never what would fit its figures. `inference_facts` fills
blank columns of a row with it, once, when the row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from tonnage.calibration.note_words import NoteWords, stated_anywhere, words
from tonnage.calibration.rows import InferenceRow

Facts = Mapping[str, Any]
NOTHING: Final[Facts] = MappingProxyType({})
HALF: Final = ("fp16", "bf16")
POOL: Final = "pool"  # `mem_kind` of memory that an engine took beforehand, not what a run needs
VARIABLE_LENGTH_SHARE: Final = 0.46  # mean over longest of SQuAD contexts cut at 384 tokens: 177 of 384


def words_of_source(row: InferenceRow) -> Facts:
    """Column -> value of what the tables of a known source state in their own words; empty for any other."""
    known = (vocabulary for source, vocabulary in SOURCE_WORDS if source.search(row.source))
    return stated_anywhere(row.note, chain.from_iterable(known))


def documented_facts(row: InferenceRow) -> Facts:
    """Column -> value of what the row's source documents; empty for a source that is not known."""
    found: dict[str, Any] = {}
    for source, reader in SOURCES:
        if source.search(row.source):
            found |= reader(row)
    return found


def _tensorflow_bert(row: InferenceRow) -> Facts:
    """NVIDIA/DeepLearningExamples@729963d, BERT. Both benchmarks compile with XLA: TensorFlow/LanguageModeling/BERT/
    scripts/finetune_inference_benchmark.sh passes `--use_xla`, that of TensorFlow2 `true` for the `use_xla` of
    run_inference_benchmark.sh. 16 bit is automatic mixed precision (`--amp`, `--use_fp16`): weights stay in 32 bit.
    What is timed are steps over a data set: of `estimator.predict`, of a loop (run_squad.py of each)."""
    return {"compiled": "y", "autocast": _answer(row.precision in HALF), "looped": "y"}


def _tensorflow_classifiers(row: InferenceRow) -> Facts:
    """The same repository, TensorFlow/Classification/ConvNets: `--amp`, with and without `--xla` as its tables say.

    resnet50v1.5/inference_benchmark.sh names ImageNet (`--data_dir`) and no DALI: runtime/runner.py then decodes its
    photographs on `num_preprocessing_threads = 10`, whatever the host, for the steps of an estimator; model/resnet.py
    stages images to the device in training only, so that a step of evaluation waits for them. They are computed
    channels first (utils/cmdline_helper.py of June 2020, when the tables were measured: `--data_format` NCHW by
    default), but where XLA lays them out, and in 16 bit channels last: grappler turns the graph round where half of the
    convolutions are in fp16 on Volta or newer (NVIDIA/tensorflow@eaf50b25, generic_layout_optimizer.cc of grappler,
    `GetSrcAndDstDataFormats`). README.md, known issues: «Performance without XLA enabled is low due to BN + ReLU fusion
    bug»."""
    compiled = "; xla" in row.note.casefold()
    half = row.precision in HALF
    return {
        "autocast": _answer(half), "decoding_threads": 10, "looped": "y", "staged": "n",
        "channels_last": "" if compiled else _answer(half), "fused_norms": "" if compiled else "n",
    }  # fmt: skip


def _pytorch_classifiers(row: InferenceRow) -> Facts:
    """The same repository, PyTorch/Classification/ConvNets/image_classification/training.py: validation runs under
    `torch.cuda.amp.autocast`, entered again for each batch, so that weights are cast for each. Mixed precision runs
    channels last (configs.yml: `memory_format: nhwc`). What `validate` times are steps of its loop: the batch from the
    loader, the network, loss and accuracy, whose three figures are read back (`.item()`)."""
    eager_half = row.precision in HALF and row.engine == "pytorch"
    return {"autocast": _answer(eager_half), "channels_last": "y" if eager_half else "", "looped": "y"}


def _triton_classifiers(row: InferenceRow) -> Facts:
    """The same repository, PyTorch/Classification/ConvNets/triton/resnet50/README.md: «Number of model instances» is 1
    in the offline scenario, 2 in the online one. Triton's ONNX Runtime takes inputs from memory of the host and copies
    them inside its run (triton-inference-server/server@14411dfc, src/backends/backend/onnxruntime/onnxruntime.cc,
    `SetInputTensors`: «currently ONNX Runtime only recognize input data on CPU»)."""
    return {
        "instances": 2 if row.concurrency and row.concurrency > 1 else 1,
        "staged": "n" if "onnxruntime" in row.engine else "",
    }


def _paddle_classifiers(row: InferenceRow) -> Facts:
    """The same repository, PaddlePaddle/Classification/RN50v1.5: inference.py runs an exported program through Paddle
    Inference, which hands its subgraphs to TensorRT (`enable_tensorrt_engine`): a converted network."""
    return {"native": "n"} if row.engine == "trt" else NOTHING


def _mlperf(row: InferenceRow) -> Facts:
    """MLPerf inference, closed division: networks written for the engine. The load generator is beside it, no
    client. Server: the load is raised until the latency limit of the rules, and not printed. BERT reads SQuAD's
    contexts, cut at 384 tokens. Systems of four H100 SXM say «6x 4th Gen NVLink» between accelerators
    (closed/*/systems/*_H100_SXM_80GBx4_TRT.json, Dell and Fujitsu): boards of four have no switch."""
    note = row.note.casefold()
    found: dict[str, Any] = {
        "native": "y", "remote": "n", "latency_bound": _answer("server" in note),
        "switched": "n" if re.search(r"_H100_SXM_80GBx4_", row.source) else "",
    }  # fmt: skip
    cut = re.search(r"real lengths \(<=\s*(\d+)", note)
    return {**found, "mean_input_len": float(cut[1]) * VARIABLE_LENGTH_SHARE} if cut else found


def _faster_transformer(row: InferenceRow) -> Facts:
    """NVIDIA/FasterTransformer docs, bert_guide, «EFF»: padding is removed, and the mean real length is half of the
    sequence length of the table."""
    halved = re.search(r"mean(?: real length)?\s*[=~]\s*seq_len/2", row.note.casefold())
    return {"mean_input_len": row.input_len / 2.0} if halved and row.input_len else NOTHING


def _lmdeploy(row: InferenceRow) -> Facts:
    """InternLM/lmdeploy, benchmark/a100_fp16.md: the memory column is what the engine reserved for keys and values, and
    percentiles of a token's time are over all tokens after the first of all requests (benchmark/profile_generation.py,
    `sorted_token_latency`)."""
    if row.metric == "peak_mem_gib":
        return {"mem_kind": POOL} if "pool" in row.note.casefold() else NOTHING
    return {"token_mean": "y"} if row.metric.startswith("tpot") else NOTHING


def _tensorrt_llm_0_5(_: InferenceRow) -> Facts:
    """NVIDIA/TensorRT-LLM 0.5: a decode step has a block of threads for each query head. The kernel that reads shared
    heads once (XQA) came after it (docs/source/blogs/XQA-kernel.md: 2.4 times the throughput of Llama 70B)."""
    return {"rereads": "y"}


# Requests and tokens of a step that TensorRT-LLM 0.14's `trtllm-bench build` builds an engine for, by model, degree and
# the longest sequence (NVIDIA/TensorRT-LLM, tensorrt_llm/bench/build/benchmark_config.yml at 8fcf9fc2; 0: any other).
BENCH_0_14: Final = MappingProxyType({
    ("8b", 1, 0): (2048, 8192),
    ("70b", 1, 0): (2048, 2048), ("70b", 2, 0): (256, 1024), ("70b", 2, 4096): (2048, 1024),
    ("70b", 4, 0): (2048, 1024), ("70b", 8, 0): (8192, 16384),
})  # fmt: skip


def _tensorrt_llm_0_14(row: InferenceRow) -> Facts:
    """NVIDIA/TensorRT-LLM 0.14, performance overview, «Engine Building»: `trtllm-bench build` builds an engine for what
    its table says; entries of Llama 3 are taken for Llama 3.1 of the same size, which has none. Prompts of 20,000
    tokens run through steps of 1,024: they are read in pieces. 0.90 of free memory is the cache's by default."""
    llama = re.fullmatch(r"llama3(?:\.1)?-(8b|70b)", row.model.casefold())
    longest = int((row.input_len or 0) + (row.output_len or 0))
    size = llama[1] if llama else ""
    built_for = BENCH_0_14.get((size, row.tp or 1, longest)) or BENCH_0_14.get((size, row.tp or 1, 0))
    if built_for is None:
        return NOTHING
    return {
        "most_requests": built_for[0], "most_step_tokens": built_for[1], "built": "y", "chunked": "y",
        "cache_fraction": 0.90,
    }  # fmt: skip


def _tensorrt_llm_0_17(_: InferenceRow) -> Facts:
    """The same of 0.17: `trtllm-bench build` works out for the lengths of the data set what it builds an engine for,
    with 10^9 bytes of weights for a GiB, and «in majority of cases» 0.95 of free memory is the cache's («Running the
    Benchmark»)."""
    return {"tuned": "decimal", "built": "y", "chunked": "y", "cache_fraction": 0.95}


def _tensorrt_llm_1_0(_: InferenceRow) -> Facts:
    """The same of 1.0, whose PyTorch backend builds no engine and reads prompts whole by default: the
    tool then takes at least the tokens of the longest prompt and one for each request."""
    return {"tuned": "y", "cache_fraction": 0.95}


def _tensorrt_llm_online(_: InferenceRow) -> Facts:
    """NVIDIA/TensorRT-LLM, performance overview, «Online Serving Measurements»: its column is the mean inter-token
    latency (ITL)."""
    return {"token_mean": "y"}


def _gpustack(row: InferenceRow) -> Facts:
    """gpustack/gpustack, docs/performance-lab: the serving script of TensorRT-LLM is `trtllm-serve MODEL`, whose server
    is Python."""
    return {"front_end": "python"} if row.engine == "trtllm" else NOTHING


def _answer(yes: bool) -> str:
    return "y" if yes else "n"


_EXAMPLES: Final = r"^NVIDIA/DeepLearningExamples\b.*"
SOURCES: Final[tuple[tuple[re.Pattern[str], Callable[[InferenceRow], Facts]], ...]] = (
    (re.compile(_EXAMPLES + r"\bTF[12] BERT\b"), _tensorflow_bert),
    (re.compile(_EXAMPLES + r"\bTF1 \S*(?:resnet|resnext)"), _tensorflow_classifiers),
    (re.compile(_EXAMPLES + r"\bPyTorch \S*(?:resnet|resnext|efficientnet)\S* README"), _pytorch_classifiers),
    (re.compile(_EXAMPLES + r"\bPyTorch resnet50 triton$"), _triton_classifiers),
    (re.compile(_EXAMPLES + r"\bPaddle \S*RN50"), _paddle_classifiers),
    (re.compile(r"^mlcommons/inference_results"), _mlperf),
    (re.compile(r"^NVIDIA/FasterTransformer\b"), _faster_transformer),
    (re.compile(r"^InternLM/lmdeploy\b"), _lmdeploy),
    (re.compile(r"^gpustack/gpustack\b"), _gpustack),
    (re.compile(r"^NVIDIA/TensorRT-LLM\b.*\bv0\.5$"), _tensorrt_llm_0_5),
    (re.compile(r"^NVIDIA/TensorRT-LLM perf-overview\S* online\b"), _tensorrt_llm_online),
    (re.compile(r"^NVIDIA/TensorRT-LLM perf-overview\S* v0\.14$"), _tensorrt_llm_0_14),
    (re.compile(r"^NVIDIA/TensorRT-LLM perf-overview\S* v0\.17$"), _tensorrt_llm_0_17),
    (re.compile(r"^NVIDIA/TensorRT-LLM perf-overview\S* v1\.0$"), _tensorrt_llm_1_0),
)

# In which words the tables of a source print a column.
SOURCE_WORDS: Final[tuple[tuple[re.Pattern[str], tuple[NoteWords, ...]], ...]] = (
    (
        re.compile(_EXAMPLES),
        (
            words("remote", r"triton", "y"),
            words("traced", r"format=torchscript trace", "y"),
            words("start_up", r"inflated by start-up", "y"),
        ),
    ),
    (
        re.compile(r"^NVIDIA/FasterTransformer\b"),
        (
            words("compiled", r"tf with xla|tensorflow xla", "y"),
            words("padding", r"padding removed|remove-padding", "removed"),
            # `int8_mode` of its programs: 1 without a quantised residual, 2 with one (fastertransformer/cuda/
            # open_attention.h, bert_encoder_transformer.h); columns of bert_guide are named by it.
            words("quantised_residual", r"ft-int8-v2", "y"),
            words("quantised_residual", r"ft-int8-v1", "n"),
            words("traced", r"torchscript", "y"),
            words("remote", r"triton", "y"),
        ),
    ),
    (re.compile(r"^NVIDIA/TensorRT demo\b"), (words("lengths", r"fixed seq len", "fixed"),)),
    (
        re.compile(r"^NVIDIA/TensorRT-LLM\b"),
        (words("lengths", r"fixed ISL/OSL", "fixed"), words("remote", r"via triton", "y")),
    ),
    (
        re.compile(r"^mlcommons/inference_results"),
        (words("data_set", r"cnn/dailymail", "cnn/dailymail"), words("data_set", r"openorca", "openorca")),
    ),
    (re.compile(r"^gpustack/gpustack\b"), (words("lengths", r"random fixed-length", "fixed"),)),
)
