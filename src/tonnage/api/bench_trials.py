"""The runs of a bench: the requests, their target, their texts, and the responses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.bench import BenchServeOptions, key_headers, read_lengths
from tonnage.benchmarks.load.dialects import find_dialect
from tonnage.errors import InputError, TonnageError
from tonnage.http.pool import HttpPool, read_endpoint
from tonnage.http.urls import without_secrets
from tonnage.settings import Settings

if TYPE_CHECKING:
    from tonnage.benchmarks.load.generator import LoadTarget
    from tonnage.benchmarks.load.prompts import Prompts
    from tonnage.http.pool import HttpPool
    from tonnage.traffic.arrivals import Arrival
    from tonnage.traffic.bench import ServiceBench
    from tonnage.traffic.exchanges import Exchange, LatencyPromise, LoadResult
    from tonnage.workload.jobs import Lengths, ServeJob

USUAL_RATE_PER_S: Final = 1.0
PROBE_WORDS: Final = (32, 160)
SHORT_PROBE_WORDS: Final = 8
LONGEST_WARM_UP_S: Final = 10.0


class ServiceTrials:
    """The runs of one bench, with what they share."""

    def __init__(
        self, url: str, options: BenchServeOptions, settings: Settings, on_step: Callable[[str], None]
    ) -> None:
        from tonnage.api.inputs import load_workload

        self._url, self._options, self._settings, self._on_step = without_secrets(url), options, settings, on_step
        self._asked_url = url
        workload = None if options.workload is None else load_workload(options.workload, settings=settings)
        self.job = None if workload is None else _serving_job(workload.job, options.workload)
        self._remarks: list[str] = []
        self._cpu_s = 0.0
        self._promise = _promise(options, self.job)
        if options.find_capacity and not self._promise.limits:
            raise InputError("--find-capacity needs a promise", hint="--p95-latency 500ms, --p95-ttft or --p95-tpot")
        if options.arrivals == "ramp" and options.last_rate_per_s is None:
            raise InputError("a ramp needs --to-rate", hint="--arrivals ramp --rate 1 --to-rate 20")
        if options.find_capacity and (options.trace or options.arrivals == "ramp"):
            raise InputError("--find-capacity offers steady rates", hint="leave out --trace and ramps")

    async def measure(self) -> ServiceBench:
        target = self._target()
        pool = HttpPool(target.endpoint)
        try:
            return await self._measured(target, pool)
        finally:
            pool.close()

    async def _measured(self, target: LoadTarget, pool: HttpPool) -> ServiceBench:
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
        return ServiceBench(
            url=self._url, protocol=target.dialect.name, model=target.model, arrivals=words, began=began,
            promise=self._promise, result=result, capacity=capacity,
            client_cpu_s_per_request=self._cpu_s / sent, rows=(), predicted=(), remarks=tuple(self._remarks),
        )  # fmt: skip

    async def _search(self, target: LoadTarget, pool: HttpPool, prompts: Prompts) -> Any:
        from tonnage.traffic.bench import CapacitySearch

        search = CapacitySearch(self._rate())
        while (rate := search.next_rate()) is not None:
            result, _ = await self._trial(target, pool, prompts, rate)
            search.note(rate, result)
            state = "void" if result.void else "held" if result.holds else "broke the promise"
            self._on_step(f"{rate:.3g} requests/s: {state}")
        return search.found()

    async def _trial(self, target: LoadTarget, pool: HttpPool, prompts: Prompts, rate: float) -> tuple[LoadResult, str]:
        from tonnage.benchmarks.load.generator import offer_load
        from tonnage.traffic.exchanges import summarise

        arrivals, sending_s, words = self._arrivals(rate)

        def show(sent: int, answered: int) -> None:
            self._on_step(f"{words}: {sent:,} sent, {answered:,} ended")

        before_s = _cpu_s()
        exchanges: list[Exchange] = await offer_load(target, pool, arrivals, prompts.prompt, show)
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
        from tonnage.sizing.traces import load_trace
        from tonnage.traffic.arrivals import PROCESSES, ArrivalPlan, replayed

        options = self._options
        if options.trace is not None:
            found = [
                one
                for one in replayed(load_trace(Path(options.trace)), speed=options.speed)
                if one.at_s < options.duration_s
            ]
            return found, min(options.duration_s, found[-1].at_s + 1e-9), f"trace {Path(options.trace).name}"
        if options.arrivals not in PROCESSES:
            raise InputError(f"'{options.arrivals}' is not a kind of arrivals", hint="poisson, constant or ramp")
        plan = ArrivalPlan(
            process=options.arrivals, rate_per_s=rate, duration_s=options.duration_s,  # type: ignore[arg-type]
            last_rate_per_s=options.last_rate_per_s, seed=options.seed,
        )  # fmt: skip
        return plan.arrivals(), plan.duration_s, plan.words

    def _rate(self) -> float:
        if self._options.rate_per_s is not None:
            return self._options.rate_per_s
        return USUAL_RATE_PER_S if self.job is None else self.job.rate_per_s

    def _target(self) -> LoadTarget:
        from tonnage.benchmarks.load.generator import LoadTarget

        return LoadTarget(
            endpoint=read_endpoint(self._asked_url), dialect=find_dialect(self._options.protocol),
            model=self._options.model or "", headers=key_headers(self._options.api_key_env),
            timeout_s=self._options.timeout_s,
        )  # fmt: skip

    async def _named(self, target: LoadTarget, pool: HttpPool) -> LoadTarget:
        """The target with the model it is asked for by name."""
        from tonnage.benchmarks.load.probing import first_model, stated_model

        if target.model:
            return target
        if not target.dialect.name.startswith(("openai", "open-inference")):
            return replace(target, model=await stated_model(target, pool) or "default")
        return replace(target, model=await first_model(target, pool))

    async def _prompts(self, target: LoadTarget, pool: HttpPool) -> Prompts:
        """The texts to send. A probe with the first text of the file shows that the service answers; without a file two
        show how it counts tokens, too."""
        from tonnage.benchmarks.load.probing import made_prompt, probe
        from tonnage.benchmarks.load.prompts import Prompts, TokenCount, learn_count, read_rows

        rows = () if self._options.data is None else read_rows(Path(self._options.data))
        count = TokenCount()
        if rows:
            await probe(target, pool, rows[0])
        else:
            fewer, more = PROBE_WORDS
            few = await probe(target, pool, made_prompt(fewer))
            try:
                many = await probe(target, pool, made_prompt(more))
            except TonnageError:  # it answers, but takes no text so long: a shorter pair
                (fewer, more), many = (SHORT_PROBE_WORDS, fewer), few
                few = await probe(target, pool, made_prompt(fewer))
            if few is not None and many is not None:
                count = learn_count((fewer, few), (more, many))
            else:
                self._remarks.append("the service does not say how many tokens it read: input lengths are in words")
        asked = None if self.job is None else self.job.requests
        read = _lengths("--input-tokens", self._options.input_tokens, asked.input_tokens if asked else None, "128")
        written = _lengths("--output-tokens", self._options.output_tokens, asked.output_tokens if asked else None, "64")
        return Prompts(
            count=count, input_tokens=read, output_tokens=written if target.dialect.generates else None, rows=rows,
            seed=self._options.seed,
        )  # fmt: skip


def _lengths(flag: str, text: str | None, of_workload: Lengths | None, usual: str) -> Lengths:
    """As the flag says, else the workload, else the usual ones."""
    if text is None and of_workload is not None:
        return of_workload
    return read_lengths(flag, usual if text is None else text)


def _serving_job(job: object, file: str | None) -> ServeJob:
    from tonnage.workload.jobs import ServeJob

    if not isinstance(job, ServeJob):
        raise InputError(f"{file} is not a workload of kind serve", hint="bench measures a service")
    return job


def _promise(options: BenchServeOptions, job: ServeJob | None) -> LatencyPromise:
    """Flags, else what the workload promises."""
    from tonnage.traffic.exchanges import LatencyPromise

    stated = LatencyPromise(ttft_s=options.p95_ttft_s, tpot_s=options.p95_tpot_s, latency_s=options.p95_latency_s)
    if stated.limits or job is None:
        return stated
    return LatencyPromise(ttft_s=job.p95_ttft_s, tpot_s=job.p95_tpot_s, latency_s=job.p95_latency_s)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system
