"""What asks a worker to save and end: a signal, the file `stop`, the file `notice`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

NOTICE_S: Final = 30.0  # the shortest notice of the clouds we know (GCP); TONNAGE_NOTICE_S says otherwise


class Interrupted(
    BaseException
):  # no error, so that no handler of errors takes it: ends work that may be left at any point, such as evaluation
    """A signal came while interruptible work was under way."""


class Interrupts:
    """Watches for the ways to be asked to end. Use it as a context: handlers are put back at its end."""

    def __init__(self, folder: Path, *, notice_s: float | None = None) -> None:
        self._stop, self._notice = folder / "stop", folder / "notice"
        self._notice_s = notice_s if notice_s is not None else float(os.environ.get("TONNAGE_NOTICE_S", NOTICE_S))
        self._previous: dict[int, Any] = {}
        self._interruptible = False
        self.source: str | None = None  # "SIGTERM", "SIGINT", "notice"
        self.deadline: float | None = None  # on the clock of time.monotonic

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.source is None:
            self.source, self.deadline = signal.Signals(number).name, time.monotonic() + self._notice_s
        if self._interruptible:
            self._interruptible = False
            raise Interrupted(self.source)

    @property
    def preempted(self) -> bool:
        """Asked to save and be started again elsewhere."""
        if self.source is None and self._notice.exists():
            self.source, self.deadline = "notice", time.monotonic() + self._read_notice_s()
        return self.source is not None

    def _read_notice_s(self) -> float:
        text = self._notice.read_text(encoding="utf-8").strip()
        return float(text) if text else self._notice_s

    @property
    def stopped(self) -> bool:
        """Asked to save and end for good."""
        return self._stop.exists()

    def remaining_s(self) -> float | None:
        """Seconds until the machine is taken; None while there is no notice."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A signal inside raises Interrupted at once, instead of being noted for the next step."""
        if self.preempted:
            raise Interrupted(self.source)
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False
