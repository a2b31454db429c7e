"""A running service measured: `tonnage.bench_serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.traffic.bench import ServiceBench
    from tonnage.workload.jobs import Lengths

OnProgress = Callable[[str], None]


def read_lengths(flag: str, text: str) -> Lengths:
    """Lengths in tokens: `128`, or `mean=200,max=1000`, or `p50=40,p90=80,max=120` as in a workload file.

    >>> read_lengths("--input-tokens", "mean=48,max=128")
    Lengths(mean=48.0, maximum=128)
    """
    from pydantic import TypeAdapter, ValidationError

    from tonnage.workload.file.length_fields import TokenLengths, find_length_faults, freeze_lengths

    parts = dict(part.partition("=")[::2] for part in text.split(","))
    given: Any = {key.strip(): value for key, value in parts.items()} if "=" in text else text
    try:
        value = float(text) if "=" not in text else {key: float(one) for key, one in given.items()}
        fields = TypeAdapter(TokenLengths).validate_python(value)
    except (ValueError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"found '{text}'"
        raise InputError(f"{flag}: {said}", hint="write 128, or mean=200,max=1000, or p50=40,p90=80,max=120") from error
    for key, fault in find_length_faults(fields):
        raise InputError(f"{flag}: {key} {fault}".replace("  ", " "))
    return freeze_lengths(fields)


def read_seconds(flag: str, text: str) -> float:
    """A duration as workload files write it: `500ms`, `2s`.

    >>> read_seconds("--p95-ttft", "500ms")
    0.5
    """
    from tonnage.workload.durations import parse_duration_s

    try:
        found = parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"{flag}: {error}", hint="write 500ms, 2s or 10m") from error
    if not found > 0:
        raise InputError(f"{flag}: found '{text}', expected more than nothing")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchServeOptions(Options):
    """What is offered to the service, what it has promised, and what is known of it."""

    protocol: str = option(
        "--protocol", "openai-chat, openai-completions, openai-embeddings, tei-embed, tei-predict, tei-rerank, "
        "classify or open-inference.", default="openai-chat", metavar="NAME",
    )  # fmt: skip
    model: str | None = option(
        "--model", "The model, as the service names it. [default: the first that /v1/models lists]",
        default=None, metavar="NAME",
    )  # fmt: skip
    workload: str | None = option(
        "--workload", "A workload of kind serve: rate, lengths, promise and model are taken from it.",
        default=None, metavar="FILE",
    )  # fmt: skip
    rate_per_s: float | None = option(
        "--rate", "Requests a second. [default: the workload's, else 1]", default=None, metavar="R", least=1e-3,
        most=1e5,
    )  # fmt: skip
    arrivals: str = option("--arrivals", "poisson, constant or ramp.", default="poisson", metavar="HOW")
    last_rate_per_s: float | None = option(
        "--to-rate", "Of a ramp: the rate at its end.", default=None, metavar="R", least=0.0, most=1e5
    )
    trace: str | None = option(
        "--trace", "Replay a CSV: arrived_at, num_prefill_tokens, num_decode_tokens.", default=None, metavar="FILE"
    )
    speed: float = option("--speed", "Replay a trace so many times as fast.", default=1.0, metavar="X", least=1e-3)
    duration_s: float = option("--duration", "How long to send.", default=30.0, text="30s", metavar="TIME",
                               read=read_seconds)  # fmt: skip
    warm_up_s: float | None = option(
        "--warm-up", "At the start, not counted. [default: a tenth, at most 10s]", default=None, metavar="TIME",
        read=read_seconds,
    )  # fmt: skip
    input_tokens: str | None = option(
        "--input-tokens", "128, or mean=200,max=1000, or p50=40,p90=80,max=120. [default: the workload's, else 128]",
        default=None, metavar="LENGTHS",
    )  # fmt: skip
    output_tokens: str | None = option(
        "--output-tokens", "The same of answers. [default: the workload's, else 64]", default=None, metavar="LENGTHS",
    )  # fmt: skip
    data: str | None = option(
        "--data", "Texts to send: JSONL (text, prompt, messages, or body), or a text a line.", default=None,
        metavar="FILE",
    )  # fmt: skip
    p95_ttft_s: float | None = option(
        "--p95-ttft", "Promise: time to the first token.", default=None, metavar="TIME", read=read_seconds
    )
    p95_tpot_s: float | None = option(
        "--p95-tpot", "Promise: time per token after the first.", default=None, metavar="TIME", read=read_seconds
    )
    p95_latency_s: float | None = option(
        "--p95-latency", "Promise: time of a whole answer.", default=None, metavar="TIME", read=read_seconds
    )
    find_capacity: bool = option(
        "--find-capacity", "Search the highest rate that keeps the promise; each trial lasts --duration.", default=False
    )
    timeout_s: float = option("--timeout", "For one answer.", default=120.0, text="2m", metavar="TIME",
                              read=read_seconds)  # fmt: skip
    most_late_s: float | None = option(
        "--most-late", "Lateness of sending (p95) that voids a run. [default: 10ms, or a tenth of the median latency]",
        default=None, metavar="TIME", read=read_seconds,
    )  # fmt: skip
    api_key_env: str | None = option(
        "--api-key-env", "The environment variable that holds the service's key.", default=None, metavar="NAME"
    )
    seed: int = option("--seed", "Fixes arrivals, lengths and texts.", default=0, metavar="N", least=0)
    rows: str | None = option("--rows", "Write the measured rows here, CSV.", default=None, metavar="FILE")
    gpu: str | None = option(
        "--gpu", "The service's device, for the rows. [default: this processor, where the service is local]",
        default=None, metavar="NAME",
    )  # fmt: skip
    gpus: int | None = option("--gpus", "How many devices it has.", default=None, metavar="N", least=1)
    engine: str = option("--engine", "The service's engine, for the rows.", default="", metavar="NAME")
    precision: str = option("--precision", "The precision it computes in, for the rows.", default="", metavar="NAME")


def bench_serve(
    url: str,
    options: BenchServeOptions | None = None,
    *,
    settings: Settings | None = None,
    on_step: OnProgress | None = None,
) -> Answer[ServiceBench]:
    """Offer load to the service at `url` in an open loop, and say how it answered.

    Times run from when a request was due. The answer's fault is set where the client itself was late (no rows are kept
    then) or nothing was answered. Rows go to `options.rows` and into the store. Raises InputError for options and files
    that cannot be used, TonnageError where no service answers, MissingExtra without the extra `load`.
    """
    from tonnage.api.bench_rows import keep_rows
    from tonnage.api.bench_trials import ServiceTrials
    from tonnage.http.pool import run_in_loop
    from tonnage.reports.service_bench import service_bench_report

    options, settings = options or BenchServeOptions(), settings or current_settings()
    trials = ServiceTrials(url, options, settings, on_step or _silent)
    bench = keep_rows(run_in_loop(trials.measure()), trials.job, options, settings)
    return Answer(bench, service_bench_report, _fault(bench), remarks=bench.remarks)


def key_headers(variable: str | None) -> dict[str, str]:
    """The header that carries the key of an environment variable. InputError where it is not set."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise InputError(f"the environment variable {variable} is not set", hint=f"export {variable}=KEY")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


def _fault(bench: ServiceBench) -> TonnageError | None:
    if bench.result.void:
        return TonnageError(
            f"the run is void: {bench.result.void}", hint="a lower --rate, or another machine for the client"
        )
    if not bench.result.answered:
        faults = ", ".join(f"{count} {kind}" for kind, count in bench.result.faults)
        return TonnageError(f"nothing was answered: {faults}", hint="is the service up?")
    return None


def _silent(text: str) -> None:
    del text
