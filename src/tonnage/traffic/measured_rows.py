"""What a load test measured, as rows in the columns of the inference facts: `tonnage validate inference` reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.calibration.columns import INFERENCE_COLUMNS
from tonnage.traffic.exchanges import LoadResult, TimingSummary
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

BENCH_SOURCE: Final = "tonnage bench serve"
_SHARES: Final = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredService:
    """What was measured, as far as it is known; blanks stay blank in the rows."""

    model: str
    shape: ModelShape | None
    generates: bool  # tokens one by one
    gpu: str
    gpus: int | None
    tensor_parallel: int | None
    engine: str
    precision: str
    weights: str
    input_asked: Lengths | None = None  # in tokens, what was drawn from; None: texts of a file, or of a trace
    client_cpu_s: float | None = None  # a request, of a client on the service's own machine; None: elsewhere


def inference_rows(result: LoadResult, service: MeasuredService, began: datetime) -> list[dict[str, str]]:
    """One row a figure. None of a void run, and none where nothing was answered; no 99th percentiles where the client
    was late then.

    `concurrency` is the mean number of requests in flight, for models that answer in one pass; of those that write
    tokens the note states the offered rate, which says more.
    """
    if result.void or result.latency is None:
        return []
    base = _base(result, service, began)
    return [
        _finished(base, metric, value)
        for metric, value in _figures(result, service.generates)
        if not (result.tail_is_late and metric.endswith("_p99"))
    ]


def _figures(result: LoadResult, generates: bool) -> Iterator[tuple[str, float]]:
    if result.latency is not None:
        yield from _latencies("latency_ms", "latency_ms_mean", result.latency)
    if result.ttft is not None:
        yield from _latencies("ttft_ms", "ttft_ms", result.ttft)
    if result.tpot is not None:
        yield from _latencies("tpot_ms", "tpot_ms", result.tpot)
    yield "requests_per_s", result.requests_per_s
    if generates and result.output_tokens_per_s is not None:
        yield "output_tokens_per_s", result.output_tokens_per_s


def _latencies(name: str, mean: str, spread: TimingSummary) -> Iterator[tuple[str, float]]:
    yield mean, 1000.0 * spread.mean
    for share in _SHARES:
        yield f"{name}_{share}", 1000.0 * getattr(spread, share)


def _base(result: LoadResult, service: MeasuredService, began: datetime) -> dict[str, Any]:
    shape, at = service.shape, f"{began.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    sizes = {} if shape is None else {
        "params": count_parameters(shape).total, "n_layers": shape.layers, "d_model": shape.hidden,
        "n_heads": shape.heads, "n_kv_heads": shape.kv_heads, "d_ff": shape.ffn, "vocab": shape.vocab,
    }  # fmt: skip
    users = None if service.generates else max(round(result.in_flight), 1)
    return {
        "config_id": f"bench@{at}", "source": BENCH_SOURCE, "model": service.model, **sizes,
        "kind": "decoder" if service.generates else "encoder", "gpu": service.gpu, "n_gpus": service.gpus,
        "tp": service.tensor_parallel, "engine": service.engine, "precision": service.precision,
        "weights_quant": service.weights, "batch_size": None if service.generates else 1, "concurrency": users,
        "input_len": result.input_tokens, "output_len": result.output_tokens if service.generates else None,
        "note": f"request_rate_qps={result.offered_per_s:.6g}; {result.sent} requests; open loop; measured {at}; "
        f"in flight {result.in_flight:.3g}; faults {result.sent - result.answered}" + _known(service),
    }  # fmt: skip


def _known(service: MeasuredService) -> str:
    """What a local profile reads besides, of models that answer in one pass (`calibration.local_inference`)."""
    if service.generates:
        return ""
    asked, client_s = service.input_asked, service.client_cpu_s
    said = "" if asked is None else f"; input mean={asked.mean:g} longest={asked.maximum}"
    return said if client_s is None else f"{said}; client takes s={client_s:.3g}"


def _finished(base: dict[str, Any], metric: str, value: float) -> dict[str, str]:
    cells = base | {"metric": metric, "value": float(f"{value:.6g}")}
    text = {name: "" if cells.get(name) is None else str(cells[name]) for name in INFERENCE_COLUMNS if name != "id"}
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
    return {"id": f"b{digest[:12]}"} | text
