"""Rows of a batch sent, tried again where that may help, and recorded: each once, whatever happens."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from tonnage.batches.gate import BatchStopped, Gate
from tonnage.batches.records import MOST_UNWRITTEN, Finished, GroupCommit, LineSink, answer_line, fault_line, tokens_of
from tonnage.http.pool import Endpoint, ExchangeFault, HttpAnswer, HttpPool, request_bytes
from tonnage.http.retries import is_temporary, retry_after_s
from tonnage.traffic.batch import BadRow, BatchProgress, BatchRow, Ending
from tonnage.values import dataclass

Rows = Iterator[BatchRow | BadRow | None]
MOST_TASKS: Final = 512  # rows that wait for another try, and four for each place, before no others are taken
LEASE_LOOK_S: Final = 0.5  # between two looks for work that others gave up
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 30.0  # between two tries of a row
AWAY_WAIT_S: Final = 5.0  # at most, between two tries of a service that cannot be reached
AWAY_SAID_S: Final = 3.0  # after so long without an answer it is said
REFUSED_WAIT_S: Final = 1.0  # on a 429 that names no wait
RETRY_SHARE: Final = 0.2  # retries may be this share of the answers, and a few more, before all slow down
FREE_RETRIES: Final = 50
TICK_S: Final = 0.25
LONGEST_MESSAGE: Final = 500
AFTER_INTERRUPT_S: Final = 10.0  # that answers on their way may take once the user asked to stop
_DECODER: Final = json.JSONDecoder()
_NO_KEY: Final = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carriage:
    """How rows are carried. `concurrency` None: found by feedback. Prices are for the limit and the forecast."""

    endpoint: Endpoint
    headers: Mapping[str, str]
    timeout_s: float
    tries: int  # of one row
    patience_s: float  # that the service may be away before the batch stops
    concurrency: int | None = None
    usd_per_input_token: float | None = None
    usd_per_output_token: float | None = None
    most_usd: float | None = None
    deadline_s: float | None = None

    def usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """None where no price is stated."""
        if self.usd_per_input_token is None and self.usd_per_output_token is None:
            return None
        return input_tokens * (self.usd_per_input_token or 0.0) + output_tokens * (self.usd_per_output_token or 0.0)


class BatchTransfer:
    """One run of a batch. `carry` returns how it ended; `faults` counts the kinds of rows that failed."""

    def __init__(
        self,
        carriage: Carriage,
        *,
        finished: Finished,
        total: int,
        sink: LineSink,
        on_progress: Callable[[BatchProgress], None],
        on_recorded: Callable[[Sequence[int]], None] | None = None,
        gate: Gate | None = None,
        signals: bool = True,
    ) -> None:
        """`on_recorded` is called with the lines whose rows are on the disk. `gate`: of an earlier run, which goes on
        with the concurrency that was found. `signals`: Ctrl-C and SIGTERM stop this run."""
        self._to, self._finished, self._total, self._on_progress = carriage, finished, total, on_progress
        self._sink, self._on_recorded, self._signals = sink, on_recorded, signals
        self._gate = gate or Gate(carriage.concurrency)
        self._input_tokens, self._output_tokens = finished.input_tokens, finished.output_tokens
        self._retries = self._sent = self._answers = 0
        self._away, self._unreached = "", 0  # why the service was not reached at last, and how often since it answered
        self._usd_answered = 0.0  # of this run, for the mean of a request
        self.faults: Counter[str] = Counter()
        self.reason = ""
        self._ending: Ending | None = None
        self._fault: BaseException | None = None

    async def carry(self, rows: Rows) -> Ending:
        """Send rows that are not done yet; None among them: ask for the next one a little later.

        Raises the error of a disk that cannot be written, and of an input that cannot be read; what was answered
        before is on the disk in any case.
        """
        self._began_s = self._heard_s = monotonic()
        self._pool = HttpPool(self._to.endpoint)
        self._gate.begin()
        self._commit = GroupCommit(self._sink, self._on_recorded)
        self._stopping = asyncio.Event()
        writer = asyncio.create_task(self._commit.run())
        writer.add_done_callback(self._writer_ended)
        ticker = asyncio.create_task(self._tick())
        tasks: set[asyncio.Task[None]] = set()
        try:
            with self._interrupts():
                try:
                    await self._feed(rows, tasks)
                finally:
                    await self._last_answers(tasks)
        finally:
            ticker.cancel()
            self._commit.close()
            with suppress(Exception):  # raised below, as `_fault`
                await writer
            self._pool.close()
        if self._fault is not None:
            raise self._fault
        self._on_progress(self.progress())
        return self._ending or "done"

    def progress(self) -> BatchProgress:
        commit = self._commit
        return BatchProgress(
            total=self._total, done_before=len(self._finished.keys), answered=commit.answered, failed=commit.failed,
            in_flight=self._gate.in_flight, limit=self._gate.limit, retries=self._retries,
            seconds=monotonic() - self._began_s, input_tokens=self._input_tokens, output_tokens=self._output_tokens,
            usd=self._to.usd(self._input_tokens, self._output_tokens), away=self._said_away(),
        )  # fmt: skip

    def _said_away(self) -> str:
        """Who has not answered for how long, and how long that is waited for; empty where it answers."""
        away_s = monotonic() - self._heard_s
        if not self._away or away_s < AWAY_SAID_S:
            return ""
        return (
            f"nothing answers at {self._to.endpoint.authority} ({self._away}): waiting up to {self._to.patience_s:g} s"
        )

    # sending

    async def _feed(self, rows: Rows, tasks: set[asyncio.Task[None]]) -> None:
        """Every row becomes a task once it has a place."""
        try:
            for row in rows:
                if row is None:
                    await self._wait_for_work()
                    continue
                await self._wait_for_room(tasks)
                if isinstance(row, BadRow):
                    self._fail(row, "bad row", row.reason, None)
                    continue
                await self._gate.enter()
                if self._over_budget():
                    self._gate.leave()
                    self.stop("cost", f"the next requests would pass {self._to.most_usd:.6g} USD")
                    return
                task = asyncio.create_task(self._carry_row(row))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(self._row_ended)
            while tasks:
                await asyncio.wait(tasks)
        except BatchStopped:
            return

    async def _wait_for_room(self, tasks: set[asyncio.Task[None]]) -> None:
        """Until the disk and the rows under way leave room for another; Stopped where nothing more is to be sent."""
        await asyncio.sleep(0)
        while not self.stopping:
            if self._commit.waiting <= MOST_UNWRITTEN and len(tasks) <= MOST_TASKS + 4 * self._gate.limit:
                return
            await asyncio.sleep(0.01)
        raise BatchStopped

    async def _wait_for_work(self) -> None:
        """All that is left is others' work, which they may give up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), LEASE_LOOK_S)
            raise BatchStopped

    async def _carry_row(self, row: BatchRow) -> None:
        """Until the row is recorded, or the batch stops. The task has its place already."""
        headers = {**self._to.headers, "Idempotency-Key": row.key}
        path = row.path.removeprefix("/v1") if self._to.endpoint.path.endswith("/v1") else row.path
        request, tries = request_bytes(self._to.endpoint, path, row.body, headers), 0
        while True:
            self._sent += 1
            try:
                answer = await self._pool.send(request, timeout_s=self._to.timeout_s)
                failure = self._judge(row, answer)
            except ExchangeFault as fault:
                away = fault.kind == "connect"  # no fault of the row
                if away:
                    self._away, self._unreached = str(fault), self._unreached + 1
                failure = _Failure(str(fault), "no connection" if away else fault.kind, None, counts=0 if away else 1)
            finally:
                self._gate.leave()
            if failure is None or self.stopping:
                return
            tries += failure.counts
            if tries >= self._to.tries or not failure.again:
                self._fail(row, failure.code, failure.message, failure.status)
                return
            try:
                await self._wait_before_retry(failure, tries)
                await self._gate.enter(first=True)
            except BatchStopped:
                return

    async def _wait_before_retry(self, failure: _Failure, tries: int) -> None:
        self._retries += 1
        wait_s = min(FIRST_WAIT_S * 2 ** max(tries - 1, 0), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)
        if not failure.counts and failure.asked_s is None:
            wait_s = min(FIRST_WAIT_S * 2 ** min(self._unreached - 1, 10), AWAY_WAIT_S) * random.uniform(0.5, 1.0)
        away_s = monotonic() - self._heard_s
        wait_s = min(wait_s, max(self._to.patience_s - away_s, 0.0) + FIRST_WAIT_S)
        if away_s > self._to.patience_s:
            at = self._to.endpoint.authority
            self.stop("away", f"no answer from {at} for {away_s:.0f} s, at last: {failure.message}")
        elif failure.asked_s is not None:
            self._gate.refused(failure.asked_s)
            wait_s = failure.asked_s * random.uniform(1.0, 1.1)
        elif not failure.counts or self._retries > FREE_RETRIES + RETRY_SHARE * self._answers:
            self._gate.refused(max(wait_s, REFUSED_WAIT_S if failure.counts else wait_s))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)
            raise BatchStopped

    # judging

    def _judge(self, row: BatchRow, answer: HttpAnswer) -> _Failure | None:
        """Record a good answer; else what is wrong with it."""
        self._gate.learn_limits(answer.headers)
        if answer.status != 200:
            return self._refusal(answer)
        self._hear()
        try:
            tokens = tokens_of(_DECODER.decode(answer.body.decode()))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return _Failure("the answer is no JSON of this protocol", "rubbish", 200)
        self._answers += 1
        self._input_tokens += tokens[0]
        self._output_tokens += tokens[1]
        self._usd_answered += self._to.usd(*tokens) or 0.0
        self._gate.answered()
        self._commit.add(answer_line(row, answer.status, answer.body, tokens), row.line, failed=False)
        return None

    def _hear(self) -> None:
        """The service answers."""
        self._heard_s, self._away, self._unreached = monotonic(), "", 0

    def _refusal(self, answer: HttpAnswer) -> _Failure:
        message = _message_of(answer.body)
        status, code = answer.status, f"http {answer.status}"
        if status in _NO_KEY or (status == 404 and not self._answers and not self._commit.answered):
            self.stop("upstream", f"the service answers {status}: {message}")
            return _Failure(message, code, status, again=False)
        asked_s = retry_after_s(answer.header("retry-after"))
        if status == 429:
            self._hear()
            return _Failure(message, code, status, counts=0, asked_s=REFUSED_WAIT_S if asked_s is None else asked_s)
        if status == 503 and asked_s is not None:
            return _Failure(message, code, status, asked_s=asked_s)
        if status < 500:
            self._hear()
        return _Failure(message, code, status, again=is_temporary(status))

    def _fail(self, row: BatchRow | BadRow, code: str, message: str, status: int | None) -> None:
        self.faults[code] += 1
        self._commit.add(fault_line(row, code, message[:LONGEST_MESSAGE], status), row.line, failed=True)

    def _over_budget(self) -> bool:
        """Whether what was spent and what is on its way, each as dear as the mean, pass the limit."""
        limit = self._to.most_usd
        if limit is None:
            return False
        spent = self._to.usd(self._input_tokens, self._output_tokens) or 0.0
        each = self._usd_answered / self._answers if self._answers else 0.0
        return spent + self._gate.in_flight * each > limit

    # ending

    @property
    def stopping(self) -> bool:
        return self._ending is not None

    def stop(self, ending: Ending, reason: str) -> None:
        """Send nothing more; the first ending counts."""
        if self._ending is None:
            self._ending, self.reason = ending, reason
            self._stopping.set()
            self._gate.stop()

    async def _last_answers(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for what is on its way, a while where the user asked to stop; raise what broke a task."""
        if tasks:
            await asyncio.wait(tasks, timeout=AFTER_INTERRUPT_S if self._ending == "interrupted" else None)
        for task in tuple(tasks):
            task.cancel()

    def _row_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:  # a bug of ours
            self._fault = error
            self.stop("upstream", str(error))

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and (error := writer.exception()) is not None:
            self._fault = error
            self.stop("upstream", str(error))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._on_progress(self.progress())
            deadline_s = self._to.deadline_s
            if deadline_s is not None and monotonic() - self._began_s >= deadline_s:
                self.stop("deadline", "the deadline is reached")

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the batch, a second one ends the process at once."""
        loop = asyncio.get_running_loop()
        listens = self._signals and threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM) if listens else ()
        try:
            for one in signals:
                loop.add_signal_handler(one, self._interrupted, signals)
        except NotImplementedError:  # Windows: KeyboardInterrupt as usual
            signals = ()
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)

    def _interrupted(self, signals: tuple[signal.Signals, ...]) -> None:
        self.stop("interrupted", "asked to stop")
        for one in signals:
            asyncio.get_running_loop().remove_signal_handler(one)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A try that brought no answer. `counts`: as how many of the row's tries; `asked_s`: the service asked to wait."""

    message: str
    code: str
    status: int | None
    again: bool = True
    counts: int = 1
    asked_s: float | None = None


def _message_of(body: bytes) -> str:
    """What an error's body says, in one line."""
    try:
        found = json.loads(body)
        error = found.get("error", found) if isinstance(found, dict) else found
        said = error.get("message", error) if isinstance(error, dict) else error
    except ValueError:
        said = body[:LONGEST_MESSAGE].decode("utf-8", "replace")
    return " ".join(str(said).split())[:LONGEST_MESSAGE]
