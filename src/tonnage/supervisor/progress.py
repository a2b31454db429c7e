"""What the workers have done so far, from what they append to the journal and the metrics."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.progress import read_progress
from tonnage.runs.tail import Tail

RECENT_STEPS = 50


class ProgressReader:
    """Read now and then; knows the newest step, checkpoint, and when there was last a sign of work."""

    def __init__(self, folder: RunFolder, *, now: datetime) -> None:
        self._journal, self._metrics = Tail(folder.journal_file), Tail(folder.metrics_file)
        self._path, self._mark = folder.path, read_progress(folder.path)  # a mark of before is no sign of work
        self.step_in_start = 0  # newest step of the newest start: the position of the run
        self.total_steps: int | None = None
        self.checkpoint: Event | None = None
        self.saves_s: deque[float] = deque(maxlen=5)
        self.steps_s: deque[float] = deque(maxlen=RECENT_STEPS)
        self.active_at = now
        self.changed = False  # in the newest start
        self.said = ""
        self.outcome: list[str] = []  # what is worth saying of a good end
        self.read(now)

    @property
    def checkpoint_step(self) -> int | None:
        return None if self.checkpoint is None else int(self.checkpoint.fields["step"])

    @property
    def steps_left(self) -> int | None:
        return None if self.total_steps is None else max(0, self.total_steps - self.step_in_start)

    def read(self, now: datetime) -> None:
        """Take in what is new."""
        for event in self._journal.events():
            self._take(event, now)
        for values in self._metrics.values():
            self.active_at = now
            self._reached(int(values.get("step", 0)))
            if values.get("step_s"):
                self.steps_s.append(float(values["step_s"]))
        mark = read_progress(self._path)  # of every step, where metrics are logged now and then
        if mark is not None and mark != self._mark:
            self._mark, self.active_at = mark, now
            self._reached(mark.step)

    def starts(self, now: datetime) -> None:
        """The processes start again."""
        self.step_in_start = self.checkpoint_step or 0
        self.active_at = now
        self.steps_s.clear()
        self.changed, self.said, self.outcome = False, "", []

    def _take(self, event: Event, now: datetime) -> None:
        if not event.who.startswith("rank"):
            return
        self.active_at = now
        self._reached(int(event.fields.get("step", 0)))
        if event.kind is EventKind.CHECKPOINT:
            self.checkpoint = event
            if event.fields.get("seconds"):
                self.saves_s.append(float(event.fields["seconds"]))
        elif event.kind is EventKind.OUT_OF_MEMORY:
            self.changed = bool(event.fields.get("next_micro_batch"))
        elif event.kind is EventKind.STOPPING:
            self.said = "; ".join(str(event.fields[key]) for key in ("message", "hint") if event.fields.get(key))
        elif event.kind is EventKind.CRASHED:
            self.said = self.said or str(event.fields.get("message", ""))
        elif event.kind in (EventKind.EARLY_STOP, EventKind.BEST):
            self.outcome.append(str(event.fields.get("message", "")))
        elif event.kind is EventKind.RESUMED:
            self.step_in_start = int(event.fields.get("step", 0))
        if event.fields.get("total_steps"):
            self.total_steps = int(event.fields["total_steps"])

    def _reached(self, step: int) -> None:
        self.step_in_start = max(self.step_in_start, step)
