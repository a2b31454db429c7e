"""The generator: one event loop that sends each request when it is due and notes what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from time import perf_counter
from typing import Final

from tonnage.benchmarks.load.dialects import CountedTokens, Dialect, Prompt, Rubbish, TimedStreamReader, read_answer
from tonnage.http.pool import Endpoint, ExchangeFault, HttpAnswer, HttpPool, request_bytes
from tonnage.traffic.arrivals import Arrival
from tonnage.traffic.exchanges import Exchange
from tonnage.values import dataclass

# A timer of the loop ends up to half a millisecond early or late. What is sent early is timed from its sending.
EARLY_S: Final = 0.0005
HEAD_START_S: Final = 0.05
OnProgress = Callable[[int, int], None]  # sent, answered


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The service, how it is spoken to, and how long an answer may take."""

    endpoint: Endpoint
    dialect: Dialect
    model: str
    headers: Mapping[str, str]
    timeout_s: float = 120.0
    most_open: int = 4000  # requests in flight; one more waits, and its lateness says so

    def request(self, prompt: Prompt) -> bytes:
        path = self.dialect.path(self.model)
        if self.endpoint.path.endswith("/v1"):  # the base URL that OpenAI's clients are given
            path = path.removeprefix("/v1")
        return request_bytes(self.endpoint, path, self.dialect.request_body(self.model, prompt), self.headers)


async def offer_load(
    target: LoadTarget,
    pool: HttpPool,
    arrivals: Iterable[Arrival],
    prompt_of: Callable[[Arrival], Prompt],
    on_progress: OnProgress | None = None,
) -> list[Exchange]:
    """Send every arrival when it is due, wait for all answers; the exchanges, in the order in which they ended."""
    loop = asyncio.get_running_loop()
    began_s = perf_counter() + HEAD_START_S
    done: list[Exchange] = []
    open_: set[asyncio.Task[None]] = set()

    async def ask(request: bytes, at_s: float) -> None:
        done.append(await _exchange(target, pool, request, began_s, at_s))

    try:
        for sent, arrival in enumerate(arrivals):
            request = target.request(prompt_of(arrival))
            await _until(began_s + arrival.at_s)
            if len(open_) >= target.most_open:
                await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            task = loop.create_task(ask(request, arrival.at_s))
            open_.add(task)
            task.add_done_callback(open_.discard)
            if on_progress is not None and sent % 64 == 0:
                on_progress(sent, len(done))
        if open_:
            await asyncio.gather(*open_)
    finally:
        for task in open_:
            task.cancel()
    return done


async def ask_once(target: LoadTarget, pool: HttpPool, prompt: Prompt) -> tuple[Exchange, HttpAnswer | None]:
    """One request outside of a run, and its answer where one came."""
    reader = TimedStreamReader() if target.dialect.generates else None
    due_s = perf_counter()
    try:
        answer = await pool.send(
            target.request(prompt), timeout_s=target.timeout_s, on_body=reader.feed if reader else None
        )
    except ExchangeFault as fault:
        return Exchange(due_s=0.0, late_s=0.0, latency_s=perf_counter() - due_s, fault=_fault_words(fault)), None
    return _noted(target.dialect, answer, reader, 0.0, due_s, answer.sent_s), answer


async def _until(due_s: float) -> None:
    """Wait until a moment of `perf_counter`; other tasks go on in any case."""
    wait_s = due_s - perf_counter()
    if wait_s <= EARLY_S:
        await asyncio.sleep(0)
    while wait_s > EARLY_S:
        await asyncio.sleep(wait_s)
        wait_s = due_s - perf_counter()


async def _exchange(target: LoadTarget, pool: HttpPool, request: bytes, began_s: float, at_s: float) -> Exchange:
    reader = TimedStreamReader() if target.dialect.generates else None
    due_s, sent_s = began_s + at_s, perf_counter()
    try:
        answer = await pool.send(request, timeout_s=target.timeout_s, on_body=reader.feed if reader else None)
    except ExchangeFault as fault:
        base_s = min(due_s, sent_s)
        return Exchange(
            due_s=at_s, late_s=max(sent_s - due_s, 0.0), latency_s=perf_counter() - base_s, fault=_fault_words(fault)
        )
    return _noted(target.dialect, answer, reader, at_s, due_s, sent_s)


def _noted(
    dialect: Dialect, answer: HttpAnswer, reader: TimedStreamReader | None, at_s: float, due_s: float, sent_s: float
) -> Exchange:
    """The exchange of a whole answer. Times run from when it was due, or from its sending where that was earlier."""
    base_s, late_s = min(due_s, sent_s), max(sent_s - due_s, 0.0)
    latency_s = answer.last_byte_s - base_s
    fault, usage, streamed = _content(dialect, answer, reader)
    pieces = reader.pieces_s if reader is not None and streamed and not fault else []
    tokens = (usage.output_tokens or len(pieces) or None) if dialect.generates else None
    several = tokens is not None and tokens > 1 and len(pieces) > 1
    return Exchange(
        due_s=at_s, late_s=late_s, latency_s=latency_s, fault=fault,
        ttft_s=pieces[0] - base_s if pieces else None,
        tpot_s=(pieces[-1] - pieces[0]) / (tokens - 1) if several and tokens else None,
        input_tokens=usage.input_tokens, output_tokens=tokens,
        gaps_s=tuple(after - before for before, after in pairwise(pieces)),
    )  # fmt: skip


def _content(dialect: Dialect, answer: HttpAnswer, reader: TimedStreamReader | None) -> tuple[str, CountedTokens, bool]:
    """(fault, usage, whether it was a stream) of a whole answer."""
    if answer.status != 200:
        return f"http {answer.status}", CountedTokens(), False
    if reader is not None and "event-stream" in (answer.header("content-type") or ""):
        return reader.fault or ("" if reader.ended else "stream without end"), reader.usage, True
    try:
        return "", read_answer(dialect, answer.body), False
    except Rubbish:
        return "rubbish", CountedTokens(), False


def _fault_words(fault: ExchangeFault) -> str:
    return {"connect": "no connection", "closed": "connection closed", "too-large": "answer too large"}.get(
        fault.kind, fault.kind
    )
