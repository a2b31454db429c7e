"""One file brought into a partial file: ranges side by side, each patient, never two versions mixed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import field, replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final, TypeVar

from tonnage.errors import FetchError
from tonnage.fetching.partial import Partial
from tonnage.fetching.remote import Backend, FetchStopped, RemoteFile, SourceChanged
from tonnage.http.retries import FIRST_WAIT_S, RetryPolicy, TemporaryError
from tonnage.values import dataclass

T = TypeVar("T")
LONGEST_WAIT_S: Final = 600.0  # even where a server asks for more


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What transfers share: threads, the stop signal, and the receiver of progress and warnings."""

    pool: Pool
    stop: Event
    attempts: int = 6
    first_wait_s: float = FIRST_WAIT_S
    advance: Callable[[int], None] = field(default=lambda _bytes: None)
    say: Callable[[str], None] = field(default=lambda _text: None)

    def check(self) -> None:
        """Raise Stopped after an interruption."""
        if self.stop.is_set():
            raise FetchStopped

    def retries(self) -> RetryPolicy:
        """A fresh count of failures."""
        return RetryPolicy(
            attempts=self.attempts, wait=self._wait, give_up=_given_up, first_wait_s=self.first_wait_s,
            longest_retry_after_s=math.inf,
        )  # fmt: skip

    def insist(self, ask: Callable[[], T], what: str) -> T:
        """The answer of `ask`, asked again after each TemporaryError until an interruption (Stopped)."""

        def checked() -> T:
            self.check()
            return ask()

        return self.retries().insist(checked, what)

    def _wait(self, seconds: float) -> None:
        """Wait, though no longer than LONGEST_WAIT_S; a long wait is reported. Raises Stopped on an interruption."""
        seconds = min(seconds, LONGEST_WAIT_S)
        if seconds > 5:
            self.say(f"waiting {seconds:.0f} s")
        if self.stop.wait(seconds):
            raise FetchStopped


def _given_up(what: str, failures: int, error: TemporaryError) -> FetchError:
    hint = "run the same command again: what has arrived is kept; --attempts says how often it is tried"
    return FetchError(f"{what}: {error} (after {failures} attempts)", hint=hint)


def transfer(backend: Backend, file: RemoteFile, partial: Partial, means: Means) -> None:
    """Bring every missing byte of this version; raises SourceChanged when the source has another by now."""
    if not file.ranged:
        means.pool.submit(lambda: _whole(backend, file, partial, means)).result()
        return
    means.advance(partial.arrived_bytes)
    given_up = Event()
    futures = [
        means.pool.submit(lambda part=part: _range(backend, file, partial, part, means, given_up))  # type: ignore[misc]
        for part in partial.missing()
    ]
    _settle(futures, given_up)


def _settle(futures: list[Future[None]], given_up: Event) -> None:
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    failed = next((one for one in done if one.exception() is not None), None)
    if failed is None:
        return
    given_up.set()
    for one in futures:
        one.cancel()
    wait(futures)  # no thread may write into the file after this
    raise failed.exception() or FetchStopped()


def _range(backend: Backend, file: RemoteFile, partial: Partial, part: int, means: Means, given_up: Event) -> None:
    start, end = partial.bounds(part)
    at, crc, retries = start, 0, means.retries()
    while at < end:
        try:
            for block in backend.read(file, at, end):
                if means.stop.is_set() or given_up.is_set():
                    raise FetchStopped
                if at + len(block) > end:
                    raise TemporaryError("the server sent more than was asked for")
                partial.write(block, at)
                crc, at = zlib.crc32(block, crc), at + len(block)
                means.advance(len(block))
                retries.progressed()
            if at < end:
                raise TemporaryError(f"the answer ended {end - at:,} bytes early")
        except TemporaryError as error:
            retries.failed(error, file.identity)
    partial.done(part, crc)


def _whole(backend: Backend, file: RemoteFile, partial: Partial, means: Means) -> None:
    """In one go, from the start after every cut: this server offers no ranges that are safe to put together."""
    retries = means.retries()
    while True:
        at = 0
        try:
            for block in backend.read(file, 0, file.size_bytes):
                if means.stop.is_set():
                    raise FetchStopped
                partial.write(block, at)
                at += len(block)
                means.advance(len(block))
            if file.size_bytes is not None and at != file.size_bytes:
                raise TemporaryError(f"{at:,} bytes came, {file.size_bytes:,} were announced")
        except TemporaryError as error:
            means.advance(-at)
            retries.failed(error, file.identity)
            continue
        partial.cut(at)
        return


def transfer_latest(
    backend: Backend,
    file: RemoteFile,
    open_partial: Callable[[RemoteFile], Partial],
    means: Means,
    *,
    most_versions: int = 4,
) -> tuple[RemoteFile, Partial]:
    """The file whole in one version: when it changes on the way, what has come is dropped and it starts over."""
    for _ in range(most_versions):
        partial, before = open_partial(file), _Counted(means)
        try:
            transfer(backend, file, partial, before.means)
            now = means.insist(lambda file=file: backend.look_again(file), file.identity)  # type: ignore[misc]
            if now.version == file.version and now.size_bytes == file.size_bytes:
                partial.close(flush=True)
                return now, partial
        except SourceChanged:
            now = means.insist(lambda file=file: backend.look_again(file), file.identity)  # type: ignore[misc]
        except BaseException:
            partial.close(flush=False)
            raise
        partial.close(flush=False)
        means.advance(-before.bytes)
        if (now.version, now.size_bytes) == (file.version, file.size_bytes):
            means.say(f"{file.identity}: the server does not keep to ranges, fetching it in one go")
            now = replace(now, ranged=False)
        else:
            means.say(f"{file.identity} changed on the way: starting over")
        file = now
    raise FetchError(
        f"{file.identity} changed {most_versions} times while it was fetched", hint="try when it is no longer written"
    )


class _Counted:
    """Means that count what was reported, to take it back."""

    def __init__(self, means: Means) -> None:
        self.bytes = 0
        self._tell = means.advance
        self.means = replace(means, advance=self._advance)

    def _advance(self, count: int) -> None:
        self.bytes += count  # a lost update would only bend the progress bar
        self._tell(count)


class Pool:
    """`size` daemon threads taking work in the order it is given."""

    def __init__(self, size: int, name: str) -> None:
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(size)]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Have `call` run on some thread."""
        future: Future[Any] = Future()
        self._queue.put((future, call))
        return future

    def close(self) -> None:
        """Let the threads end once what is queued is done."""
        for _ in self._threads:
            self._queue.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the threads, so long at most."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # it is raised where the future's result is read
                future.set_exception(error)
