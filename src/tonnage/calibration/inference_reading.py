"""A measured inference row -> what was run: shape, engine class, number format, devices, load; or why not."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from tonnage.calibration.inference_setup import (
    copy_rate,
    device_link,
    fewest_ranks,
    model_family,
    rereading,
    row_engine,
    row_format,
    row_shape,
)
from tonnage.calibration.inference_sources import POOL
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.errors import TonnageError
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.devices import Machine, peak_tflops, usable_bytes
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_time import fastest_step_s
from tonnage.sizing.length_points import CHAT_SPREAD, SHAREGPT_SPREAD, chat_lengths
from tonnage.sizing.schedulers import scheduler_of
from tonnage.sizing.served_formats import ServedFormat
from tonnage.sizing.tuned_limits import DECIMAL_GIB_BYTES, tuned_limits
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.engine_limits import NO_LIMITS, EngineLimits
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.shapes import ModelShape

Load = Literal["pass", "batching-server", "offline", "static", "served"]
# Mean prompt and answer, in tokens, and how far they are spread, of data sets by their names: CNN/DailyMail as GPT-J
# of MLPerf reads it (articles of 780 words, summaries of 300 characters), OpenOrca as MLPerf cut it (its rules count
# 294 tokens a sample), ShareGPT as serving benchmarks cut it, at 1,024 and 2,048 tokens.
DATA_SETS: Final = MappingProxyType({
    "cnn/dailymail": (980.0, 69.0, CHAT_SPREAD),
    "openorca": (220.0, 294.0, CHAT_SPREAD),
    "sharegpt": (225.0, 210.0, SHAREGPT_SPREAD),
})  # fmt: skip
ANSWERS: Final = MappingProxyType({"y": True, "n": False})  # blank: unknown
QUEUED_TOKENS: Final = 6e6  # written in all by a maximum-throughput run that does not say how many requests it queued
CONTINUOUS_SHARE: Final = 0.95  # of it inside a latency limit: MLPerf Server over Offline, 0.9 to 1
UNSTATED_CONTEXT: Final = (64.0, 64.0)  # prompt and answer where a batch-1 decode rate states neither


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCase:
    """One row, understood. `replicas` x `tensor_parallel` devices; lengths in tokens, means where they vary."""

    row: InferenceRow
    shape: ModelShape
    engine: str
    served: ServedFormat
    machine: Machine
    tensor_parallel: int
    replicas: int
    load: Load
    batch: float
    input_tokens: float
    output_tokens: float
    rate_per_s: float = 0.0  # 0: all at once
    users: int = 0  # 0: open loop
    prompts: int = 0
    varied_lengths: bool = False
    length_spread: float = CHAT_SPREAD  # of the logarithm of lengths that vary
    assumed_lengths: bool = False  # of the data set that the row names
    beams: int = 1  # hypotheses that each request carries
    remote: bool = False  # a client measured it, through a server
    autocast: bool | None = None  # weights are cast in every pass; None: as the engine's class does
    fused_attention: bool | None = None  # scores stay on the chip; None: as the engine's class does
    padded_tokens: float = 0.0  # around attention, where padding is taken away elsewhere; 0: it is not
    quantised_residual: bool | None = None  # 8-bit products give 8-bit values; None: as the engine's class does
    channels_last: bool | None = None  # how images are laid out; None: as the engine's class does
    instances: int = 1  # of the model, that a server runs side by side on each device
    norms_apart: bool = False  # what is behind convolutions stays unfused
    copied_bytes_per_s: float = 0.0  # at which images reach the device inside the step; 0: they are there
    decoding_threads: int = 0  # of the host, that get photographs ready while the device works; 0: they are ready
    rate_share: float = 1.0  # of what a saturated replica answers, where the load is held inside a latency limit
    limits: EngineLimits = NO_LIMITS  # what the engine was set to

    @property
    def requests(self) -> Requests:
        """Lengths as the row states them: the same for all, or a data set's of which the means are known."""
        if not self.varied_lengths or self.load != "served":
            return Requests(input_tokens=_alike(self.input_tokens), output_tokens=_alike(self.output_tokens))
        return Requests(
            input_tokens=chat_lengths(self.input_tokens, self.length_spread),
            output_tokens=chat_lengths(self.output_tokens, self.length_spread),
        )

    @property
    def family(self) -> str:
        return model_family(self.row.model)

    @property
    def suspect(self) -> bool:
        """The row's table or its reader doubts it."""
        return self.row.quality == "suspect"

    @property
    def faster_than_memory(self) -> bool:
        """Whether a step is said to be shorter than the devices take to read the weights, which each step does once,
        in whatever format: another column's figure, or another unit. No fit takes such a row, but it is judged like any
        other: a reason that reads the measured value does not excuse a prediction."""
        bandwidth = self.machine.accelerator.memory_bandwidth_gb_per_s
        if not self.step_s or not bandwidth or self.shape.architecture != "decoder":
            return False
        return self.step_s < fastest_step_s(self.shape, bandwidth * self.tensor_parallel)

    @property
    def step_s(self) -> float | None:
        """Seconds of a decode step as the row says; None where it does not say."""
        if self.row.metric.startswith("tpot_ms"):
            return self.row.value / 1e3
        said = self.load == "static" and self.row.metric == "output_tokens_per_s"
        return self.batch * self.replicas / self.row.value if said else None


def read_case(row: InferenceRow, catalog: Catalog) -> InferenceCase | SkippedRow:
    """What `row` measured, from its columns alone: `inference_facts` fills those that its file leaves blank."""
    try:
        reason = _unjudgeable(row)
        if reason:
            return _skip(row, reason)
        shape = row_shape(row)
        accelerator = catalog.accelerator(row.gpu)
        served = rereading(row_format(row, accelerator), shape, row)
        peak_tflops(accelerator, served.compute)
        usable_bytes(accelerator)
        return _case(row, shape, accelerator, served, catalog)
    except TonnageError as error:
        return _skip(row, error.message)


def _skip(row: InferenceRow, reason: str) -> SkippedRow:
    return SkippedRow(row_id=row.id, metric=row.metric, reason=reason)


def _unjudgeable(row: InferenceRow) -> str | None:
    if row.padding == "removed" and row.mean_input_len is None:
        return "padding removed and the real lengths not stated"
    if row.metric == "server_compute_ms_mean" and "pytorch" in row.engine:
        return "a framework that launches asynchronously reports its launches as compute time"
    if row.metric == "latency_ms_mean" and row.start_up == "y":
        return "mean latency includes start-up batches (the note says so)"
    if row.metric == "server_queue_ms_mean":
        return "queueing inside the server depends on its batching delay, which is not stated"
    if row.metric == "peak_mem_gib" and row.mem_kind == POOL:
        return "memory is a pre-allocated pool, not a need"
    if row.value <= 0:
        return "the measured value is not positive"
    if row.cache_fraction is not None and not 0 < row.cache_fraction <= 1:
        return f"cache_fraction is {row.cache_fraction:g}, which is no share of memory"
    for name in ("most_requests", "most_step_tokens", "instances"):
        limit = getattr(row, name)
        if limit is not None and limit < 1:
            return f"{name} is {limit}: no request could run"
    if row.token_mean == "y" and row.metric.startswith("tpot_ms_p") and row.metric != "tpot_ms_p50":
        return "a percentile over tokens; of these only the median is worked out"
    if row.latency_bound == "y" and row.metric.startswith(("latency", "ttft", "tpot")):
        return "latency at an offered load that the row does not state"
    return None


def _case(
    row: InferenceRow, shape: ModelShape, accelerator: Accelerator, served: ServedFormat, catalog: Catalog
) -> InferenceCase | SkippedRow:
    tensor = int(row.tp or fewest_ranks(row, shape, accelerator, served))
    count = int(row.n_gpus or tensor)
    if (row.pp or 1) > 1:
        return _skip(row, "pipeline-parallel inference is not predicted")
    node = min(count, 8)
    link = device_link(accelerator, tensor, switched=row.switched != "n")
    machine = Machine(
        accelerator=accelerator, count=max(node, tensor), intra=catalog.link(link), network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip
    plain = InferenceCase(
        row=row, shape=shape, engine=row_engine(row), served=served, machine=machine, tensor_parallel=tensor,
        replicas=max(count // tensor, 1), load="pass", remote=row.remote == "y", batch=float(row.batch_size or 0),
        input_tokens=row.input_len or 0.0, output_tokens=row.output_len or 0.0,
        autocast=ANSWERS.get(row.autocast), channels_last=ANSWERS.get(row.channels_last),
        quantised_residual=ANSWERS.get(row.quantised_residual),
        decoding_threads=row.decoding_threads or 0, norms_apart=row.fused_norms == "n",
        copied_bytes_per_s=copy_rate(row, accelerator, catalog), instances=row.instances or 1,
        fused_attention={"sdpa": True, "eager": False}.get(row.attention),
    )  # fmt: skip
    return _decoder_case(plain) if row.kind == "decoder" else _pass_case(plain)


def _pass_case(case: InferenceCase) -> InferenceCase | SkippedRow:
    """Encoders and vision: a fixed batch, a server that batches single requests, or as much as goes in."""
    row = case.row
    length = row.mean_input_len or case.input_tokens or (1.0 if row.kind == "vision" else 0.0)
    if not length:
        return _skip(row, "input length not stated")
    removed = row.padding == "removed"
    case = replace(case, input_tokens=length, padded_tokens=(row.input_len or 0.0) if removed else 0.0)
    if row.concurrency and row.concurrency > 1:
        return replace(case, load="batching-server", users=int(row.concurrency), batch=max(case.batch, 1.0))
    if case.batch:
        return case
    if row.metric in ("sequences_per_s", "samples_per_s", "requests_per_s"):
        return replace(case, load="offline", rate_per_s=1.0 if row.latency_bound == "y" else 0.0)
    return _skip(row, "batch size not stated")


def _at_once(case: InferenceCase) -> InferenceCase:
    """Clients that all ask at once of an engine that lets requests come and go: a batch from its prompts to its last
    token if the caches of its replicas hold them all, else some wait until others have been answered."""
    scheduler = scheduler_of(case.row.engine)
    if not case.row.concurrency or scheduler.admission == "fixed":
        return case
    clients, case = case.batch, replace(case, batch=case.batch / case.replicas)  # each replica has its part of them
    room = decoder_rows(
        case.shape, case.served, scheduler, serving_devices([case.machine], case.served.compute),
        [case.machine.accelerator], [case.requests], tensor_parallel=np.array([float(case.tensor_parallel)]),
        concurrency=np.array([case.batch]), limits=[case.limits],
    )  # fmt: skip
    return replace(case, load="served", prompts=int(clients)) if room.slots[0] < case.batch else case


def _limits(case: InferenceCase) -> EngineLimits:
    """What the engine was set to, as the row states it, or as its benchmark tool sets it for these lengths."""
    row = case.row
    requests: float | None = row.most_requests
    tokens: float | None = row.most_step_tokens
    if row.tuned:
        requests, tokens = tuned_limits(
            case.shape, case.served, memory_bytes=usable_bytes(case.machine.accelerator), ranks=case.tensor_parallel,
            prompt=case.input_tokens, answer=case.output_tokens,
            weights_gib_bytes=DECIMAL_GIB_BYTES if row.tuned == "decimal" else from_gib(1.0),
        )  # fmt: skip
        if row.chunked != "y":  # «Chunked prefill is disabled»: tensorrt_llm/bench/benchmark/utils/general.py
            tokens = max(tokens, case.requests.input_tokens.maximum + requests)
    return EngineLimits(
        requests=requests,
        step_tokens=tokens,
        cache_fraction=row.cache_fraction,
        built=row.built == "y",
        chunked=row.chunked == "y",
    )


def _alike(tokens: float) -> Lengths:
    return Lengths(mean=tokens, maximum=max(round(tokens), 1), points=((tokens, 1.0),))


def _round(tokens: float) -> bool:
    """A length someone chose; other figures are means over a data set."""
    return tokens % 8 == 0 or tokens % 50 == 0


def _decoder_case(case: InferenceCase) -> InferenceCase | SkippedRow:
    """Decoders: a fixed batch from start to end, all requests queued at once, or requests offered at a rate."""
    row, prompts = case.row, case.row.prompts or 0
    varied = row.lengths == "varied" or (row.lengths != "fixed" and not _round(case.output_tokens))
    known = DATA_SETS.get(row.data_set)
    case = replace(case, length_spread=known[2]) if known else case
    if not case.input_tokens and known:
        case = replace(case, input_tokens=known[0], output_tokens=known[1], beams=row.beams or 1, assumed_lengths=True)
        varied = True
    if not case.input_tokens:
        if case.batch != 1 or case.shape.architecture == "encoder-decoder":
            return _skip(row, "input and output lengths not stated")
        case = replace(case, input_tokens=UNSTATED_CONTEXT[0], output_tokens=UNSTATED_CONTEXT[1])
    if not case.output_tokens:
        return _skip(row, "output length not stated")
    case = replace(case, varied_lengths=varied, prompts=prompts, rate_per_s=row.request_rate_qps or 0.0)
    case = replace(case, limits=_limits(case))
    if case.batch or (row.concurrency and not prompts):
        return _at_once(replace(case, load="static", batch=case.batch or row.concurrency or 0.0))
    if row.concurrency:
        return replace(case, load="served", users=int(row.concurrency))
    if prompts:
        return replace(case, load="served")
    if row.metric in ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"):
        queued = max(round(QUEUED_TOKENS / case.output_tokens), 1)
        share = CONTINUOUS_SHARE if row.latency_bound == "y" else 1.0
        return replace(case, load="served", prompts=queued, rate_share=share)
    return _skip(row, "neither batch, concurrency nor offered rate is stated")
