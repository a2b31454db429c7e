"""A running service measured: `tonnage.bench_serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.benchmarks.load.generator import Target
    from tonnage.benchmarks.load.prompts import Prompts
    from tonnage.http.pool import HttpPool
    from tonnage.traffic.arrivals import Arrival
    from tonnage.traffic.bench import ServiceBench
    from tonnage.traffic.exchanges import Exchange, LatencyPromise, LoadResult
    from tonnage.traffic.measured_rows import MeasuredService
    from tonnage.workload.jobs import Lengths, ServeJob

OnProgress = Callable[[str], None]
USUAL_RATE_PER_S: Final = 1.0
PROBE_WORDS: Final = (32, 160)
LONGEST_WARM_UP_S: Final = 10.0


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


def _lengths(flag: str, text: str | None, of_workload: Lengths | None, usual: str) -> Lengths:
    """As the flag says, else the workload, else the usual ones."""
    if text is None and of_workload is not None:
        return of_workload
    return read_lengths(flag, usual if text is None else text)


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
    from tonnage.http.pool import run_in_loop
    from tonnage.reports.service_bench import service_bench_report

    options, settings = options or BenchServeOptions(), settings or current_settings()
    bench = run_in_loop(_Bench(url, options, settings, on_step or _silent).measure())
    return Answer(bench, service_bench_report, _fault(bench), remarks=bench.remarks)


class _Bench:
    """One bench, with what its trials share."""

    def __init__(self, url: str, options: BenchServeOptions, settings: Settings, on_step: OnProgress) -> None:
        from tonnage.api.inputs import load_workload
        from tonnage.http.urls import without_secrets

        self._url, self._options, self._settings, self._on_step = without_secrets(url), options, settings, on_step
        self._asked_url = url
        workload = None if options.workload is None else load_workload(options.workload, settings=settings)
        self._job = None if workload is None else _serving_job(workload.job, options.workload)
        self._remarks: list[str] = []
        self._cpu_s = 0.0
        self._promise = _promise(options, self._job)
        if options.find_capacity and not self._promise.limits:
            raise InputError("--find-capacity needs a promise", hint="--p95-latency 500ms, --p95-ttft or --p95-tpot")
        if options.arrivals == "ramp" and options.last_rate_per_s is None:
            raise InputError("a ramp needs --to-rate", hint="--arrivals ramp --rate 1 --to-rate 20")
        if options.find_capacity and (options.trace or options.arrivals == "ramp"):
            raise InputError("--find-capacity offers steady rates", hint="leave out --trace and ramps")

    async def measure(self) -> ServiceBench:
        from tonnage.http.pool import HttpPool

        target = self._target()
        pool = HttpPool(target.endpoint)
        try:
            return await self._measured(target, pool)
        finally:
            pool.close()

    async def _measured(self, target: Target, pool: HttpPool) -> ServiceBench:
        from tonnage.traffic.bench import ServiceBench

        target = await self._named(target, pool)
        prompts = await self._prompts(target, pool)
        began = self._settings.as_of or datetime.now(UTC)
        capacity, words = None, ""
        if self._options.find_capacity:
            capacity = await self._search(target, pool, prompts)
            result = next((one for rate, one in capacity.trials if rate == capacity.held_per_s), capacity.trials[-1][1])
            words = "poisson, the highest rate that kept the promise"
        else:
            result, words = await self._trial(target, pool, prompts, self._rate())
        sent = sum(one.sent_in_all for _, one in capacity.trials) if capacity else result.sent_in_all
        bench = ServiceBench(
            url=self._url, protocol=target.dialect.name, model=target.model, arrivals=words, began=began,
            promise=self._promise, result=result, capacity=capacity,
            client_cpu_s_per_request=self._cpu_s / sent, rows=(), remarks=tuple(self._remarks),
        )  # fmt: skip
        return self._keep(bench, target)

    async def _search(self, target: Target, pool: HttpPool, prompts: Prompts) -> Any:
        from tonnage.traffic.capacity import CapacitySearch

        search = CapacitySearch(self._rate())
        while (rate := search.next_rate()) is not None:
            result, _ = await self._trial(target, pool, prompts, rate)
            search.note(rate, result)
            state = "void" if result.void else "held" if result.holds else "broke the promise"
            self._on_step(f"{rate:.3g} requests/s: {state}")
        return search.found()

    async def _trial(self, target: Target, pool: HttpPool, prompts: Prompts, rate: float) -> tuple[LoadResult, str]:
        from tonnage.benchmarks.load.generator import offer_load
        from tonnage.traffic.exchanges import summarise

        arrivals, sending_s, words = self._arrivals(rate)

        def told(sent: int, answered: int) -> None:
            self._on_step(f"{words}: {sent:,} sent, {answered:,} ended")

        before_s = _cpu_s()
        exchanges: list[Exchange] = await offer_load(target, pool, arrivals, prompts.prompt, told)
        self._cpu_s += _cpu_s() - before_s
        warm_s = self._options.warm_up_s
        warm_s = min(0.1 * sending_s, LONGEST_WARM_UP_S) if warm_s is None else warm_s
        try:
            return summarise(
                exchanges, self._promise, sending_s=sending_s, warm_up_s=warm_s, most_late_s=self._options.most_late_s
            ), words
        except ValueError as error:
            raise InputError(
                f"{error}: {len(exchanges)} were sent", hint="a longer --duration, a higher --rate"
            ) from error

    def _arrivals(self, rate: float) -> tuple[Iterable[Arrival], float, str]:
        """What is due when, for how long, and in words."""
        from tonnage.traffic.arrivals import PROCESSES, ArrivalPlan, read_trace

        options = self._options
        if options.trace is not None:
            found = [
                one for one in read_trace(Path(options.trace), speed=options.speed) if one.at_s < options.duration_s
            ]
            return found, min(options.duration_s, found[-1].at_s + 1e-9), f"trace {Path(options.trace).name}"
        if options.arrivals not in PROCESSES:
            raise InputError(f"'{options.arrivals}' is no kind of arrivals", hint="poisson, constant or ramp")
        plan = ArrivalPlan(
            process=options.arrivals, rate_per_s=rate, duration_s=options.duration_s,  # type: ignore[arg-type]
            last_rate_per_s=options.last_rate_per_s, seed=options.seed,
        )  # fmt: skip
        return plan.arrivals(), plan.duration_s, plan.words

    def _rate(self) -> float:
        if self._options.rate_per_s is not None:
            return self._options.rate_per_s
        return USUAL_RATE_PER_S if self._job is None else self._job.rate_per_s

    def _target(self) -> Target:
        from tonnage.benchmarks.load.dialects import find_dialect
        from tonnage.benchmarks.load.generator import Target
        from tonnage.http.pool import read_endpoint

        return Target(
            endpoint=read_endpoint(self._asked_url), dialect=find_dialect(self._options.protocol),
            model=self._options.model or "", headers=key_headers(self._options.api_key_env),
            timeout_s=self._options.timeout_s,
        )  # fmt: skip

    async def _named(self, target: Target, pool: HttpPool) -> Target:
        """The target with the model it is asked for by name."""
        from dataclasses import replace

        if target.model or not target.dialect.name.startswith(("openai", "open-inference")):
            return replace(target, model=target.model or "default")
        return replace(target, model=await _first_model(target, pool))

    async def _prompts(self, target: Target, pool: HttpPool) -> Prompts:
        """The texts to send. Two probes show that the service answers, and how it counts tokens."""
        from tonnage.benchmarks.load.prompts import Prompts, TokenCount, learn_count, read_rows

        rows = () if self._options.data is None else read_rows(Path(self._options.data))
        few, many = [await _probe(target, pool, words) for words in PROBE_WORDS]
        count = TokenCount()
        if few is not None and many is not None:
            count = learn_count((PROBE_WORDS[0], few), (PROBE_WORDS[1], many))
        elif not rows:
            self._remarks.append("the service does not say how many tokens it read: input lengths are in words")
        asked = None if self._job is None else self._job.requests
        read = _lengths("--input-tokens", self._options.input_tokens, asked.input_tokens if asked else None, "128")
        written = _lengths("--output-tokens", self._options.output_tokens, asked.output_tokens if asked else None, "64")
        return Prompts(
            count=count, input_tokens=read, output_tokens=written if target.dialect.generates else None, rows=rows,
            seed=self._options.seed,
        )  # fmt: skip

    def _keep(self, bench: ServiceBench, target: Target) -> ServiceBench:
        """The bench with its rows, which are in the file and the store then."""
        from dataclasses import replace

        from tonnage.traffic.measured_rows import inference_rows

        rows = tuple(inference_rows(bench.result, self._service(target), bench.began))
        if rows:
            _save(rows, self._options.rows, self._settings)
        return replace(bench, rows=rows)

    def _service(self, target: Target) -> MeasuredService:
        from tonnage.traffic.measured_rows import MeasuredService

        job, options = self._job, self._options
        local = target.endpoint.host in ("localhost", "127.0.0.1", "::1")
        return MeasuredService(
            model=job.model.name if job else target.model, shape=job.model if job else _known_shape(target.model),
            generates=target.dialect.generates, gpu=options.gpu or (_this_processor() if local else ""),
            gpus=options.gpus or (1 if local and options.gpu is None else None),
            tensor_parallel=job.tensor_parallel if job else None, engine=options.engine or (job and job.engine) or "",
            precision=options.precision or (job.weights if job else ""), weights="",
        )  # fmt: skip


def key_headers(variable: str | None) -> dict[str, str]:
    """The header that carries the key of an environment variable. InputError where it is not set."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise InputError(f"the environment variable {variable} is not set", hint=f"export {variable}=KEY")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


async def _first_model(target: Target, pool: HttpPool) -> str:
    """The first model of `/v1/models`."""
    import json

    from tonnage.http.pool import ExchangeFault, request_bytes

    path = "/models" if target.endpoint.path.endswith("/v1") else "/v1/models"
    try:
        request = request_bytes(target.endpoint, path, None, target.headers, "GET")
        answer = await pool.send(request, timeout_s=target.timeout_s)
        return str(json.loads(answer.body)["data"][0]["id"])
    except ExchangeFault as fault:
        raise _no_service(target, str(fault)) from fault
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"the service lists no model at {path}", hint="--model names it") from error


async def _probe(target: Target, pool: HttpPool, words: int) -> int | None:
    """Tokens that the service counted in a text of so many words. TonnageError where it does not answer."""
    import random

    from tonnage.benchmarks.load.dialects import Prompt
    from tonnage.benchmarks.load.generator import ask_once
    from tonnage.benchmarks.load.prompts import made_text

    exchange, answer = await ask_once(
        target, pool, Prompt(text=made_text(words, random.Random(words)), output_tokens=2)
    )
    if exchange.fault:
        said = answer.body[:200].decode("utf-8", "replace") if answer else ""
        raise _no_service(target, f"{exchange.fault} {said}".strip())
    return exchange.input_tokens


def _no_service(target: Target, why: str) -> TonnageError:
    return TonnageError(
        f"no answer from {target.endpoint.authority} over {target.dialect.name}: {why}",
        hint="is the service up, and does it speak that --protocol?",
    )


def _serving_job(job: object, file: str | None) -> ServeJob:
    from tonnage.workload.jobs import ServeJob

    if not isinstance(job, ServeJob):
        raise InputError(f"{file} is no workload of kind serve", hint="bench measures a service")
    return job


def _promise(options: BenchServeOptions, job: ServeJob | None) -> LatencyPromise:
    """Flags, else what the workload promises."""
    from tonnage.traffic.exchanges import LatencyPromise

    stated = LatencyPromise(ttft_s=options.p95_ttft_s, tpot_s=options.p95_tpot_s, latency_s=options.p95_latency_s)
    if stated.limits or job is None:
        return stated
    return LatencyPromise(ttft_s=job.p95_ttft_s, tpot_s=job.p95_tpot_s, latency_s=job.p95_latency_s)


def _save(rows: tuple[dict[str, str], ...], file: str | None, settings: Settings) -> None:
    """Rows into the file, where one is named, and into the store."""
    import csv
    import io

    from tonnage.calibration.columns import INFERENCE_COLUMNS
    from tonnage.files import make_private_folder, save_for_user
    from tonnage.store import open_store

    if file is not None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, INFERENCE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        save_for_user(Path(file), text.getvalue(), hint="name another --rows")
    make_private_folder(settings.home)
    with open_store(settings.database_url) as store:
        store.add_measurements(rows, table="inference")


def _fault(bench: ServiceBench) -> TonnageError | None:
    if bench.result.void:
        return TonnageError(
            f"the run is void: {bench.result.void}", hint="a lower --rate, or another machine for the client"
        )
    if not bench.result.answered:
        faults = ", ".join(f"{count} {kind}" for kind, count in bench.result.faults)
        return TonnageError(f"nothing was answered: {faults}", hint="is the service up?")
    return None


def _known_shape(model: str) -> Any:
    """The known model of that name; None where there is none: the rows' shape is blank then."""
    from tonnage.errors import UnknownName
    from tonnage.workload.known import find_model

    try:
        return find_model(model)
    except UnknownName:
        return None


def _this_processor() -> str:
    from tonnage.benchmarks.machine import host_identity

    return host_identity().processor


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def _silent(text: str) -> None:
    del text
