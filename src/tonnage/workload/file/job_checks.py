"""Contradictions between a job and its model: lengths, parallelism, adapters, promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tonnage.workload.durations import render_duration
from tonnage.workload.engine_models import not_run
from tonnage.workload.file.job_fields import BatchFields, RequestFields, ServeFields
from tonnage.workload.file.kinds import BatchFile, ServeFile, TabularFile, TrainFile, WorkloadFile
from tonnage.workload.file.layout_checks import find_program_faults, find_train_faults
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.file.length_fields import LengthFields, find_length_faults
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.serving_layout_checks import LayoutContext, find_limit_problems, find_serving_faults
from tonnage.workload.file.terms_fields import ConstraintFields
from tonnage.workload.file.train_program import find_program_problems
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.host import HostTerms
from tonnage.workload.jobs import DRAFT_ENGINES, GENERATING_ENGINES, PREFIX_ENGINES
from tonnage.workload.shapes import ModelShape

IMAGES = ("vision-transformer", "convolution")
# Engine and weights that do not go together, and which engine does from which version.
UNSUPPORTED = {
    ("llama.cpp", "fp8"): "use int8 (its Q8_0), or vllm (0.5 and later) or tensorrt-llm (0.5 and later) for fp8",
    # TGI's launcher has no such `--quantize`; the three below ran gpt-oss-120b on an H100 (gpustack/gpustack,
    # docs/performance-lab/gpt-oss-120b/h100.md).
    ("tgi", "mxfp4"): "use vllm (0.10.2 and later), sglang (0.5.3 and later) or tensorrt-llm (1.0 and later) for mxfp4",
}

NO_FP8_CACHE = {  # engines that keep no keys and values in fp8; lmdeploy's TurboMind has int8 and int4 (its PR 4563)
    "lmdeploy": "use vllm, sglang or tensorrt-llm, or remove the key: only lmdeploy's PyTorch backend has it",
}


def find_job_problems(file: WorkloadFile, shape: ModelShape | None) -> Iterator[Problem]:
    """Everything in the job that cannot hold; without a shape, what can be said without one."""
    match file:
        case TrainFile():
            yield from _host_problems(file.host, shape)
            yield from _train_problems(file)
            yield from find_program_problems(file)
            yield from _train_layout_problems(file, shape)
            if shape is not None:
                yield from _train_shape_problems(file, shape)
        case ServeFile():
            yield from _host_problems(file.host, shape)
            yield from _serve_problems(file.serve)
            yield from _request_problems("serve", file.serve, file.layout, file.constraints, shape)
            yield from _serving_layout_problems(file, shape)
        case BatchFile():
            yield from _host_problems(file.host, shape)
            yield from _batch_problems(file.batch)
            yield from _request_problems("batch", file.batch, file.layout, file.constraints, shape)
            yield from _serving_layout_problems(file, shape)
        case TabularFile():
            yield from _tabular_problems(file)
        case _:
            assert_never(file)


def _tabular_problems(file: TabularFile) -> Iterator[Problem]:
    """A network is PyTorch's here, boosted trees are the others'."""
    table = file.tabular
    network = table.engine is not None and "pytorch" in table.engine
    if table.engine is not None and network != (table.method == "mlp"):
        trains = "networks" if network else "boosted trees"
        hint = "`engine: pytorch`" if table.method == "mlp" else "`method: mlp`, or another engine"
        yield Problem(("tabular", "engine"), f"found '{table.engine}', which trains {trains}", hint)


def _host_problems(host: HostTerms, shape: ModelShape | None) -> Iterator[Problem]:
    """Keys of pictures are for models that take pictures."""
    if shape is None or shape.architecture in IMAGES:
        return
    if host.input == "gpu":
        yield Problem(("host", "input"), f"found 'gpu', but {shape.name} takes texts", "`raw` or `prepared`")
    if host.megapixels is not None:
        yield Problem(("host", "megapixels"), f"is of pictures, and {shape.name} takes texts", "remove the key")


def _train_problems(file: TrainFile) -> Iterator[Problem]:
    data, train = file.data, file.train
    if data.samples is None and data.tokens is None:
        yield Problem(("data", "samples"), "is missing", "say how much data: `samples:` or `tokens:`")
    if data.samples is not None and data.tokens is not None:
        yield Problem(("data", "tokens"), "give `samples` or `tokens`, not both", "remove one")
    if data.seq_len is not None:
        yield from _length_problems(("data", "seq_len"), data.seq_len)
    if train.micro_batch is not None and train.micro_batch > train.global_batch:
        yield Problem(
            ("train", "micro_batch"),
            f"found {train.micro_batch}, above global_batch ({train.global_batch})",
            "global_batch counts the samples of all GPUs; raise it or lower micro_batch",
        )
    if train.lora is not None and train.method == "full":
        yield Problem(
            ("train", "lora"),
            "adapters are set, but method is full",
            "write `method: lora` or `method: qlora`",
        )
    if train.method == "qlora" and train.precision in ("fp32", "tf32"):
        yield Problem(
            ("train", "precision"),
            f"found '{train.precision}', but qlora computes in 16 bits over a 4-bit base",
            "write `precision: bf16` or fp16",
        )
    yield from _gpu_count_problems("train", train.tensor_parallel, train.pipeline_parallel, file.constraints)


def _train_shape_problems(file: TrainFile, shape: ModelShape) -> Iterator[Problem]:
    data, train = file.data, file.train
    if shape.architecture in IMAGES:
        if data.seq_len is not None:
            yield _not_for_images(("data", "seq_len"), shape)
        if data.tokens is not None:
            yield Problem(("data", "tokens"), f"{shape.name} learns from images", "give `samples`")
    elif data.seq_len is None:
        yield Problem(("data", "seq_len"), "is missing", "tokens per sequence: a number, or `{mean: 48, max: 128}`")
    else:
        yield from _position_problems(("data", "seq_len"), data.seq_len.max, shape)
    if train.method != "full" and shape.architecture == "convolution":
        yield Problem(("train", "method"), f"found '{train.method}', but {shape.name} has no projections", "use `full`")
    yield from _parallel_problems("train", train.tensor_parallel, shape)
    if train.pipeline_parallel is not None and train.pipeline_parallel > shape.layers + shape.encoder_layers:
        layers = shape.layers + shape.encoder_layers
        yield Problem(
            ("train", "pipeline_parallel"),
            f"found {train.pipeline_parallel}, more stages than {shape.name} has layers ({layers})",
            f"use at most {layers}" if layers else "leave it out: this model has no layers to cut between",
        )


def _train_layout_problems(file: TrainFile, shape: ModelShape | None) -> Iterator[Problem]:
    """What cannot be of `layout`, together with the keys of `train` that say how the work is spread."""
    fixed = file.layout.model_dump(exclude_none=True)
    names = TrainLayoutFields.model_fields
    also = {name: value for name, value in file.train.model_dump(exclude_none=True).items() if name in names}
    if not fixed:
        stated = TrainLayoutFields.model_validate(also)
        for name, message, hint in find_program_faults(stated, file.train.program, file.train.method):
            yield Problem(("train", name), message, hint)
        return
    for name, value in fixed.items():
        if also.get(name, value) != value:
            fault = f"found {value}, but train.{name} says {also[name]}"
            yield Problem(("layout", name), fault, "keep one of the two")
    layout = TrainLayoutFields.model_validate({**also, **fixed})
    limit = file.constraints.max_gpus
    for name, message, hint in find_train_faults(
        layout,
        global_batch=file.train.global_batch,
        shape=shape,
        max_gpus=limit,
        program=file.train.program,
        method=file.train.method,
    ):
        yield Problem(("layout" if name in fixed else "train", name), message, hint)
    most = file.constraints.max_nodes
    if layout.nodes is not None and most is not None and layout.nodes > most:
        yield Problem(("layout", "nodes"), f"found {layout.nodes}, above max_nodes ({most})", "raise max_nodes")


def _serving_layout_problems(file: ServeFile | BatchFile, shape: ModelShape | None) -> Iterator[Problem]:
    requests = file.serve if isinstance(file, ServeFile) else file.batch
    asked = LayoutContext(
        shape=shape, engine=requests.engine, max_gpus=file.constraints.max_gpus, service=isinstance(file, ServeFile),
        latency=isinstance(file, ServeFile) and file.serve.p95_latency is not None,
    )  # fmt: skip
    for name, message, hint in find_serving_faults(file.layout, asked):
        yield Problem(("layout", name), message, hint)


def _serve_problems(serve: ServeFields) -> Iterator[Problem]:
    if serve.p95_ttft is not None and serve.p95_latency is not None and serve.p95_ttft > serve.p95_latency:
        yield Problem(
            ("serve", "p95_ttft"),
            f"found {render_duration(serve.p95_ttft)}, above p95_latency, "
            f"which is {render_duration(serve.p95_latency)}",
            "the first token comes before the whole answer",
        )


def _batch_problems(batch: BatchFields) -> Iterator[Problem]:
    rate, hours = batch.items_per_hour, batch.hours
    if batch.items is not None and (rate is not None or hours is not None):
        extra = "items_per_hour" if rate is not None else "hours"
        yield Problem(("batch", extra), "give `items`, or `items_per_hour` with `hours`, not both", "remove one")
    elif batch.items is None and (rate is None or hours is None):
        missing = "items" if rate is None and hours is None else "hours" if hours is None else "items_per_hour"
        yield Problem(("batch", missing), "is missing", "give `items`, or `items_per_hour` together with `hours`")
    elif rate is not None and hours is not None and rate * hours < 1:
        yield Problem(("batch", "hours"), "less than one item in all", "raise items_per_hour or hours")


def _request_problems(
    section: str,
    requests: RequestFields,
    layout: ServingLayoutFields,
    limits: ConstraintFields,
    shape: ModelShape | None,
) -> Iterator[Problem]:
    for name, lengths in (("input_tokens", requests.input_tokens), ("output_tokens", requests.output_tokens)):
        if lengths is not None:
            yield from _length_problems((section, name), lengths)
    yield from _gpu_count_problems(section, requests.tensor_parallel, None, limits)
    if shape is None:
        return
    yield from _parallel_problems(section, requests.tensor_parallel, shape)
    yield from _input_problems(section, requests, shape)
    if requests.weights == "mxfp4" and not shape.experts:
        fault = f"found 'mxfp4', which holds experts in 4 bits; {shape.name} has none"
        yield Problem((section, "weights"), fault, "use int4 or fp8")
    if shape.causal and not shape.lm_head:
        yield from _one_pass_problems(section, requests, shape)
        return
    if shape.causal:
        yield from _generation_problems(section, requests, shape)
        yield from _format_problems(section, requests, shape)
        yield from _prefix_problems(section, requests, shape)
        yield from _speculative_problems(section, requests, shape)
        yield from find_limit_problems(section, requests, layout)
        return
    if requests.engine in GENERATING_ENGINES:
        fault = f"found '{requests.engine}', which serves models that generate; {shape.name} does not"
        yield Problem((section, "engine"), fault, "use tensorrt, onnxruntime or pytorch")
    yield from _one_pass_problems(section, requests, shape)


def _one_pass_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    """What a model that answers in one pass (encoders, decoders that embed or classify) has no use for."""
    if requests.prefix_cache_fraction:
        fault = f"{shape.name} generates no tokens and keeps no cache of them"
        yield Problem((section, "prefix_cache_fraction"), fault, "remove the key")
    if requests.speculative is not None:
        yield Problem((section, "speculative"), f"{shape.name} generates no tokens to guess", "remove the key")
    if requests.engine_limits is not None:
        fault = f"{shape.name} generates no tokens; its batches are `batch:` and `concurrency:` of the layout"
        yield Problem((section, "engine_limits"), fault, "remove the key")
    if requests.output_tokens is not None:
        fault = f"{shape.name} generates no tokens"
        yield Problem((section, "output_tokens"), fault, "remove the key: it answers in one pass")
    if isinstance(requests, ServeFields) and requests.p95_ttft is not None:
        yield Problem((section, "p95_ttft"), f"{shape.name} generates no tokens, so no first one", "use `p95_latency`")


def _input_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    path = (section, "input_tokens")
    if shape.architecture in IMAGES:
        if requests.input_tokens is not None:
            yield _not_for_images(path, shape)
    elif requests.input_tokens is None:
        yield Problem(path, "is missing", "tokens per request: a number, or `{mean: 200, max: 512}`")
    else:
        yield from _position_problems(path, requests.input_tokens.max, shape)


def _generation_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    path = (section, "output_tokens")
    if requests.output_tokens is None:
        hint = "tokens per answer: a number, or `{mean: 32, max: 64}`"
        if shape.architecture == "decoder":
            hint += "; a decoder that embeds is read as one from a config.json saved by the bare model (`MistralModel`)"
        yield Problem(path, "is missing", hint)
        return
    longest = requests.output_tokens.max
    if shape.architecture == "decoder" and requests.input_tokens is not None:
        if longest is None or requests.input_tokens.max is None:
            return
        together = longest + requests.input_tokens.max
        if not any(_position_problems(path, requests.input_tokens.max, shape)):  # otherwise reported there
            yield from _position_problems(path, together, shape, "input and output together")
        yield from _context_problems(path, together, requests.engine or "vllm", shape)
        return
    yield from _position_problems(path, longest, shape)


def _format_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    weights, engine = requests.weights or shape.stored_weights, requests.engine or "vllm"
    rule = not_run(engine, shape)
    if rule is not None:
        found = f"found '{engine}', which" if requests.engine else f"is missing, and {engine}, the engine by default,"
        yield Problem((section, "engine"), f"{found} does not run {rule.kind}: {shape.name} is one",
                      rule.instead if requests.engine else f"name it: {rule.instead}")  # fmt: skip
    known = UNSUPPORTED.get((engine, weights))
    if known is not None and requests.weights:
        yield Problem((section, "weights"), f"found '{weights}', which {engine} does not run", known)
    elif known is not None:
        fault = f"found '{engine}', which does not run {weights}, as the checkpoint of {shape.name} is stored"
        yield Problem((section, "engine"), fault, f"{known}, or say `weights: bf16`")
    if requests.kv_cache == "fp8" and requests.engine in NO_FP8_CACHE:
        fault = f"found 'fp8', which {requests.engine} does not keep"
        yield Problem((section, "kv_cache"), fault, NO_FP8_CACHE[requests.engine])


def _prefix_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    share, engine = requests.prefix_cache_fraction, requests.engine or "vllm"
    path = (section, "prefix_cache_fraction")
    if share and engine not in PREFIX_ENGINES:
        fault = f"found {share:g}, but {engine} shares no prefixes between requests"
        yield Problem(path, fault, f"use {', '.join(PREFIX_ENGINES)}, or remove the key")
    elif share and shape.architecture != "decoder":
        fault = f"found {share:g}, but {shape.name} reads each prompt as a whole: no part of it can be kept"
        yield Problem(path, fault, "remove the key")


def _speculative_problems(section: str, requests: RequestFields, shape: ModelShape) -> Iterator[Problem]:
    guesses, engine = requests.speculative, requests.engine or "vllm"
    if guesses is None:
        return
    path = (section, "speculative")
    if engine not in GENERATING_ENGINES or shape.architecture != "decoder":
        what = engine if engine not in GENERATING_ENGINES else shape.name
        yield Problem(path, f"{what} verifies no guesses", "remove the key, or serve a decoder with vllm")
    elif guesses.draft not in (None, "none") and engine not in DRAFT_ENGINES:
        fault = f"found {guesses.draft}, but {engine} runs no draft model"
        yield Problem((*path, "draft"), fault, f"use {', '.join(DRAFT_ENGINES)}, or leave draft out")


def _length_problems(path: KeyPath, lengths: LengthFields) -> Iterator[Problem]:
    for name, fault in find_length_faults(lengths):
        yield Problem((*path, name) if name else path, fault, "for example `{mean: 48, max: 128}`")


def _position_problems(
    path: KeyPath, longest: int | None, shape: ModelShape, what: str = "the longest sequence"
) -> Iterator[Problem]:
    longest_possible = _longest_possible(shape)
    if longest is not None and longest_possible is not None and longest > longest_possible:
        yield Problem(
            path,
            f"found {longest} ({what}), but {shape.name} has learned positions for {longest_possible}",
            f"cut it to {longest_possible}, or choose a model for longer texts",
        )


# They refuse a request longer than `max_model_len`: by default and at most `ModelShape.max_positions`.
HOLDS_CONTEXT = ("vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy")


def _context_problems(path: KeyPath, longest: int, engine: str, shape: ModelShape) -> Iterator[Problem]:
    """Requests longer than computed positions were trained for, which serving engines refuse."""
    if shape.positions not in ("rotary", "alibi") or not shape.max_positions or engine not in HOLDS_CONTEXT:
        return
    if longest > shape.max_positions:
        yield Problem(
            path,
            f"found {longest} (input and output together), above the context of {shape.name}: {shape.max_positions}, "
            f"which {engine} takes from its config.json",
            f"cut it to {shape.max_positions}, choose another model, or give a config.json with `rope_scaling`",
        )


def _longest_possible(shape: ModelShape) -> int | None:
    """Tokens a table of learned positions reaches; None where positions are computed."""
    if shape.positions != "learned" or not shape.max_positions:
        return None
    return shape.max_positions - shape.reserved_positions


def _parallel_problems(section: str, tensor_parallel: int | None, shape: ModelShape) -> Iterator[Problem]:
    if tensor_parallel in (None, 1):
        return
    path = (section, "tensor_parallel")
    if not shape.heads:
        yield Problem(path, f"{shape.name} has no attention heads to share out", "leave the key out")
    elif shape.heads % tensor_parallel:
        fits = [str(count) for count in range(1, min(shape.heads, 64) + 1) if shape.heads % count == 0]
        yield Problem(
            path,
            f"found {tensor_parallel}, which does not divide the {shape.heads} heads of {shape.name}",
            f"one of {', '.join(fits)}",
        )


def _gpu_count_problems(
    section: str, tensor: int | None, pipeline: int | None, limits: ConstraintFields
) -> Iterator[Problem]:
    needed = (tensor or 1) * (pipeline or 1)
    if limits.max_gpus is not None and needed > limits.max_gpus:
        yield Problem(
            ("constraints", "max_gpus"),
            f"found {limits.max_gpus}, but `{section}` asks for {needed} GPUs a copy of the model",
            "raise max_gpus, or lower tensor_parallel or pipeline_parallel",
        )


def _not_for_images(path: KeyPath, shape: ModelShape) -> Problem:
    return Problem(path, f"{shape.name} takes images, which have no token length", "remove the key")
