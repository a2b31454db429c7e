"""The sections of a workload file that say what is to be run: data, train, serve, batch, tabular."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tonnage.workload.file.fields import (
    Amount,
    Count,
    CountOrZero,
    Duration,
    Flag,
    Positive,
    Section,
    Spelled,
    StrictModel,
    TokenTotal,
    as_names,
    key,
    refusal,
)
from tonnage.workload.file.length_fields import TokenLengths
from tonnage.workload.file.money_fields import DataPlaceFields
from tonnage.workload.jobs import (
    AdapterKind,
    Attention,
    CacheFormat,
    EngineName,
    Method,
    Objective,
    Optimizer,
    Recompute,
    Sharding,
    TrainPrecision,
    WeightFormat,
)
from tonnage.workload.programs import Kernels, Loss, OffloadPart, ProgramName

OffloadParts = Annotated[
    tuple[OffloadPart, ...],
    BeforeValidator(as_names),
    Spelled("list of `optimizer`, `parameters`, `activations`"),
]


def _version(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise refusal("text", f"in YAML {value} is a number, which loses zeros: write '{value}' in quotes")
    return value


VersionText = Annotated[str, Field(pattern=r"^\d+(\.\d+)*$"), BeforeValidator(_version), Spelled("text such as '4.36'")]
HiddenLayers = Annotated[list[Count], Field(min_length=1, max_length=100), Spelled("list of whole numbers")]


class DataFields(DataPlaceFields):
    """What one pass over the data holds. Give `samples` or `tokens`."""

    samples: Amount | None = key("Sequences (or images) in one pass.", default=None, unit="samples", example="67_000")
    tokens: TokenTotal | None = key(
        "Tokens in one pass, instead of `samples`; divided by the mean length, rounded up.",
        default=None,
        unit="tokens",
        example="1e9",
    )
    seq_len: TokenLengths | None = key(
        "Lengths of the training sequences. `mean` is what is computed, padding included; memory follows `max`. "
        "Image models take none: their shape sets it.",
        default=None,
        unit="tokens",
        example="{mean: 48, max: 128}",
    )
    epochs: Positive = key("Passes over the data.", default=1.0, unit="epochs", example="3")


class LoraFields(StrictModel):
    """Adapters, for `method: lora` or `qlora`: a base that stays as it is, and few weights that are trained."""

    kind: AdapterKind = key(
        "`lora`, `dora` (with magnitudes, Liu et al. 2024), `llama-adapter` (Zhang et al. 2023), "
        "`llama-adapter-v2` (Gao et al. 2023: every linear layer scaled, norms trained), `prefix` (keys and "
        "values of every layer) or `prompt` (embeddings).",
        default="lora",
        example="dora",
    )
    rank: Count = key("Rank of each adapter (`lora`, `dora`).", default=16, example="16")
    tokens: Count = key(
        "Virtual tokens (`llama-adapter`, `llama-adapter-v2`, `prefix`, `prompt`).",
        default=10,
        unit="tokens",
        example="20",
    )
    targets: Literal["attention", "all-linear"] = key(
        "Which projections carry adapters (`lora`, `dora`).", default="all-linear", example="all-linear"
    )


class TrainFields(StrictModel):
    """How to train. Where the default is "chosen", the planner chooses. A `program` sets the defaults that it
    documents; any key states otherwise."""

    program: ProgramName | None = key(
        "The program that trains. Loss, optimizer, attention, compilation and what 16 bit means follow its "
        "documentation (`workload/programs.py` names each source).",
        default=None,
        shown="`tonnage` beside a `run`, else PyTorch with AdamW",
        example="torchtune",
    )
    program_version: VersionText | None = key(
        "Its version, where defaults changed.", default=None, shown="the newest documented", example="4.36"
    )
    method: Method = key(
        "Train all weights, adapters on a 16-bit base (`lora`) or on a 4-bit base (`qlora`).",
        default="full",
        example="lora",
    )
    precision: TrainPrecision = key(
        "Arithmetic. `auto` is `bf16` where the GPU has it, else `fp16`; both are mixed (fp32 master "
        "weights), `bf16-true` is not.",
        default="auto",
        example="bf16",
    )
    objective: Objective | None = key(
        "What the head learns: classes, or the next (or masked) token.",
        default=None,
        shown="classification for an encoder, else language-model",
        example="classification",
    )
    global_batch: Count = key("Samples per optimizer step over all GPUs.", default=32, unit="samples", example="64")
    optimizer: Optimizer | None = key(
        "Optimizer, which sets the state per weight.", default=None, shown="the program's, else adamw", example="adamw"
    )
    optimizer_in_backward: Flag | None = key(
        "Whether each gradient is applied and freed as soon as backward makes it.",
        default=None,
        shown="the program's, else false",
        example="true",
    )
    offload: OffloadParts | None = key(
        "What stays in host memory: `optimizer` (paged optimizers too), `parameters`, `activations`.",
        default=None,
        shown="the program's, else none",
        example="optimizer",
    )
    loss: Loss | None = key(
        "Cross entropy over the vocabulary: `plain`, `chunked` (logits part by part), `fused` (one kernel, no copy), "
        "`in-place` (Megatron's), `one-kernel` (flash-attn's, 16-bit logits that stay), `half` (plain, in 16 bit).",
        default=None,
        shown="the program's, else plain",
        example="chunked",
    )
    attention: Attention | None = key(
        "Attention kernel: `eager` stores the scores; `sdpa` and `flash` do not.",
        default=None,
        shown="the program's, else sdpa",
        example="sdpa",
    )
    kernels: Kernels | None = key(
        "Element-wise work: `separate` operations, or `fused` by hand-written kernels.",
        default=None,
        shown="the program's, else separate",
        example="fused",
    )
    compile: Flag | None = key(
        "Whether `torch.compile` fuses small kernels.", default=None, shown="the program's, else false", example="true"
    )
    lora: Section[LoraFields] | None = key("Adapters.", default=None, shown="rank 16, all-linear", example="{rank: 16}")
    micro_batch: Count | None = key(
        "Samples one GPU holds at a time.", default=None, shown="chosen", unit="samples", example="8"
    )
    recompute: Recompute | None = key(
        "Activation recomputation (checkpointing).", default=None, shown="chosen", example="selective"
    )
    sharding: Sharding | None = key(
        "What data-parallel ranks split: nothing (`ddp`), optimizer state (`zero1`), and gradients "
        "(`zero2`), and weights (`zero3`, FSDP).",
        default=None,
        shown="chosen",
        example="zero3",
    )
    tensor_parallel: Count | None = key(
        "GPUs that share each layer; must divide the attention heads.",
        default=None,
        shown="chosen",
        unit="GPUs",
        example="8",
    )
    pipeline_parallel: Count | None = key(
        "Stages the layers are cut into.", default=None, shown="chosen", unit="stages", example="2"
    )


class SpeculativeFields(StrictModel):
    """Speculative decoding: `tokens` are guessed, and the model verifies them all in one step. A step then gives
    (1 - a^(k+1)) / (1 - a) tokens of k guesses accepted with a chance of a (Leviathan et al. 2023)."""

    tokens: Annotated[int, Field(ge=0, le=64), Spelled("whole number, 0 to 64")] = key(
        "Guesses that one step verifies.", unit="tokens", example="4"
    )
    acceptance: Annotated[float, Field(ge=0, le=1), Spelled("number from 0 to 1")] = key(
        "Chance that a guess is right, given that those before it are, as measured on your texts.", example="0.7"
    )
    draft: str | None = key(
        "The small model that guesses: a name, a folder or `hf://...`, as `model`. Its weights and cache take memory, "
        "its steps time. Without it guesses cost nothing (n-grams).",
        default=None,
        shown="none",
        example="llama-3.2-1b",
    )


class EngineLimitFields(StrictModel):
    """What the engine is set to; without a key, its own default. A plan's `concurrency` is at most `requests`."""

    requests: Count | None = key(
        "Requests in flight that the engine is set to, or built for (vLLM `--max-num-seqs`, TensorRT-LLM "
        "`--max_batch_size`): memory is kept for all of them.",
        default=None,
        shown="the engine's own",
        unit="requests",
        example="256",
    )
    step_tokens: Count | None = key(
        "Tokens of one step (vLLM `--max-num-batched-tokens`, TensorRT-LLM `--max_num_tokens`).",
        default=None,
        shown="the engine's own",
        unit="tokens",
        example="8192",
    )
    cache_fraction: Annotated[float, Field(gt=0, le=1), Spelled("number above 0, to 1")] | None = key(
        "Share of memory as the engine means it: of all (vLLM `--gpu-memory-utilization`), or of what weights leave "
        "(TensorRT-LLM `--kv_cache_free_gpu_memory_fraction`).",
        default=None,
        shown="the engine's own",
        example="0.95",
    )
    built: Flag = key(
        "A TensorRT engine, built for `requests` (`trtllm-build`): its runtime holds 28 bytes for each logit of all of "
        "them, on every GPU.",
        default=False,
        example="true",
    )
    chunked: Flag = key(
        "Prompts are read in pieces of a step by an engine that does not do so by default (TensorRT-LLM).",
        default=False,
        example="true",
    )


class RequestFields(StrictModel):
    """What one request asks for."""

    input_tokens: TokenLengths | None = key(
        "Lengths of the prompts (or texts). Image models take none.",
        default=None,
        unit="tokens",
        example="{mean: 200, max: 512}",
    )
    output_tokens: TokenLengths | None = key(
        "Lengths of the answers; needed for a model that generates, refused for one that does not.",
        default=None,
        unit="tokens",
        example="32",
    )
    weights: WeightFormat | None = key(
        "Format the weights are held in; `mxfp4` holds experts in 4 bits, all else in 16.",
        default=None,
        shown="as the model's checkpoint holds them, else fp16",
        example="fp16",
    )
    kv_cache: CacheFormat = key(
        "Number format of the KV cache; `auto`: the engine's own for these weights (TensorRT-LLM keeps fp8 with "
        "fp8 weights, others 16 bits).",
        default="auto",
        example="fp8",
    )
    prefix_cache_fraction: Annotated[float, Field(ge=0, lt=1), Spelled("number from 0 to below 1")] = key(
        "Share of prompt tokens that the engine finds in its prefix cache (a system prompt that all requests begin "
        "with): not read again, and held once a replica.",
        default=0.0,
        example="0.6",
    )
    speculative: Section[SpeculativeFields] | None = key(
        "Speculative decoding.", default=None, shown="one token a step", example="{tokens: 4, acceptance: 0.7}"
    )
    tensor_parallel: Count | None = key(
        "GPUs that share one copy of the model.", default=None, shown="chosen", unit="GPUs", example="2"
    )
    engine: EngineName | None = key(
        "Software that runs the model; `tonnage explain` lists the figures used for it.",
        default=None,
        shown="vllm for a decoder that generates tokens, none for an encoder-decoder, else tensorrt",
        example="onnxruntime",
    )
    engine_limits: Section[EngineLimitFields] | None = key(
        "What the engine is set to.", default=None, shown="its own defaults", example="{requests: 256}"
    )


class TrafficFields(StrictModel):
    """How the rate moves; `rate_per_s` is its busiest. Give one of the three.

    With it, a plan weighs machines that come and go by the control law of `tonnage serve --replicas` against a fixed
    fleet (docs/scaling.md).
    """

    hourly: (
        Annotated[
            list[Annotated[float, Field(ge=0)]], Field(min_length=24, max_length=24), Spelled("list of 24 numbers")
        ]
        | None
    ) = key(
        "The day's course from midnight: 24 numbers of which only ratios count; the highest stands for `rate_per_s`.",
        default=None, example="[1, 1, 1, 1, 1, 2, 4, 8, 9, 10, ...]",
    )  # fmt: skip
    peak_to_trough: Annotated[float, Field(ge=1), Spelled("number, 1 or more")] | None = key(
        "A daily wave, highest at 15 h: its busiest rate over its quietest.", default=None, example="10"
    )
    trace: str | None = key(
        "A CSV file, from this one, with the seconds at which requests arrived (`arrived_at`); its busiest minute "
        "stands for `rate_per_s`. The first half is what the law learns from, the second what is counted.",
        default=None, example="requests.csv",
    )  # fmt: skip


class ServeFields(RequestFields):
    """A service: requests arrive all day and each must be answered in time."""

    rate_per_s: Positive = key("Requests that arrive per second at the busy time.", unit="requests/s", example="100")
    p95_latency: Duration | None = key(
        "95 % of requests are fully answered within this.", default=None, shown="no promise", example="500ms"
    )
    p95_ttft: Duration | None = key(
        "95 % of requests see their first token within this.",
        default=None,
        shown="no promise",
        example="200ms",
    )
    p95_tpot: Duration | None = key(
        "95 % of requests see each further token within this, on average over the answer (inter-token latency).",
        default=None,
        shown="no promise",
        example="50ms",
    )
    spare_replicas: CountOrZero = key(
        "Replicas kept beyond need, against a failure.", default=0, unit="replicas", example="1"
    )
    hours_per_month: Annotated[float, Field(gt=0, le=744), Spelled("number above 0, to 744")] = key(
        "Hours the service is up in a month; 730 is always.", default=730.0, unit="hours", example="176"
    )
    traffic: Section[TrafficFields] | None = key(
        "How the rate moves over the day.", default=None, shown="the busy rate all the time",
        example="{peak_to_trough: 10}",
    )  # fmt: skip


class BatchFields(RequestFields):
    """Requests to answer once, however long each takes. Give `items`, or `items_per_hour` with `hours`."""

    items: Amount | None = key("Requests in all.", default=None, unit="requests", example="240_000")
    items_per_hour: Positive | None = key(
        "Requests to answer each hour.", default=None, unit="requests/h", example="10_000"
    )
    hours: Positive | None = key(
        "For how many hours; together with `items_per_hour`, which also sets the deadline.",
        default=None,
        unit="hours",
        example="24",
    )


TabularEngine = Literal[
    "scikit-learn", "xgboost", "lightgbm", "catboost", "pytorch", "pytorch-fsdp", "h2o-gbm", "h2o-xgboost",
    "sparkling-gbm", "sparkling-xgboost", "ray-xgboost", "ray-pytorch",
]  # fmt: skip


class TabularFields(StrictModel):
    """Boosted trees or a multi-layer perceptron over a table."""

    rows: Amount = key("Rows of the table.", unit="rows", example="5_000_000")
    features: Count = key("Columns the model learns from.", unit="columns", example="310")
    method: Literal["boosted-trees", "mlp"] = key(
        "The kind of model.", default="boosted-trees", example="boosted-trees"
    )
    trees: Count = key("Boosting rounds (trees).", default=500, unit="trees", example="500")
    depth: Annotated[int, Field(gt=0, le=32), Spelled("whole number, 1 to 32")] = key(
        "Depth of each tree.", default=6, unit="levels", example="6"
    )
    bins: Annotated[int, Field(gt=1, le=65_536), Spelled("whole number, 2 to 65536")] = key(
        "Histogram bins per feature.", default=256, unit="bins", example="256"
    )
    epochs: Positive = key("Passes over the rows (`mlp`).", default=10.0, unit="epochs", example="10")
    hidden_layers: HiddenLayers = key(
        "Widths of the hidden layers (`mlp`).",
        default=lambda: [512, 256],
        shown="[512, 256]",
        example="[512, 256]",
    )
    global_batch: Count = key("Rows per step (`mlp`).", default=4096, unit="rows", example="4096")
    engine: TabularEngine | None = key(
        "What trains it on processors; corrected by `tonnage calibrate --tabular`.", default=None,
        shown="xgboost, or pytorch for `mlp`", example="lightgbm",
    )  # fmt: skip
