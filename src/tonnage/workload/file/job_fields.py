"""The sections of a workload file that say what is to be run: data, train, serve, batch, tabular."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tonnage.workload.file.fields import (
    Amount,
    Count,
    CountOrZero,
    Door,
    Duration,
    Flag,
    Positive,
    Spelled,
    TokenTotal,
    key,
)
from tonnage.workload.file.length_fields import TokenLengths
from tonnage.workload.file.money_fields import DataPlaceFields
from tonnage.workload.jobs import (
    Attention,
    EngineName,
    Method,
    Objective,
    Optimizer,
    Recompute,
    Sharding,
    TrainPrecision,
    WeightFormat,
)

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


class LoraFields(Door):
    """Low-rank adapters, for `method: lora` or `qlora`."""

    rank: Count = key("Rank of each adapter.", default=16, example="16")
    targets: Literal["attention", "all-linear"] = key(
        "Which projections carry adapters.", default="all-linear", example="all-linear"
    )


class TrainFields(Door):
    """How to train. Where the default is "chosen", the planner chooses."""

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
    optimizer: Optimizer = key("Optimizer, which sets the state per weight.", default="adamw", example="adamw")
    attention: Attention = key(
        "Attention kernel: `eager` stores the scores; `sdpa` and `flash` do not.",
        default="sdpa",
        example="sdpa",
    )
    compile: Flag = key("Whether `torch.compile` fuses small kernels.", default=False, example="true")
    lora: LoraFields | None = key("Adapters.", default=None, shown="rank 16, all-linear", example="{rank: 16}")
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


class RequestFields(Door):
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
    tensor_parallel: Count | None = key(
        "GPUs that share one copy of the model.", default=None, shown="chosen", unit="GPUs", example="2"
    )
    engine: EngineName | None = key(
        "Software that runs the model; `tonnage explain` lists the figures used for it.",
        default=None,
        shown="vllm for a model that generates tokens, else tensorrt",
        example="onnxruntime",
    )


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
    spare_replicas: CountOrZero = key(
        "Replicas kept beyond need, against a failure.", default=0, unit="replicas", example="1"
    )
    hours_per_month: Annotated[float, Field(gt=0, le=744), Spelled("number above 0, to 744")] = key(
        "Hours the service is up in a month; 730 is always.", default=730.0, unit="hours", example="176"
    )


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


class TabularFields(Door):
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
