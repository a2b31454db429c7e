"""Threads that never keep an interrupted process alive (those of concurrent.futures are joined at its end)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any


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
