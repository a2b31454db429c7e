"""When the next checkpoint is due: as the run's file says, else where saving and what a kill loses cost least."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tonnage.pricing.interruptions import ENDS_PER_HOUR, daly_interval_s
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import CheckpointSpec
from tonnage.units import SECONDS_PER_HOUR

FIRST_S: Final = 10.0  # of steps, where no interval is set: shows early that a save works, and what one takes
SHORTEST_SAVE_S: Final = 0.01  # a save of less is measured too coarsely to be the base of an interval


class CheckpointClock:
    """Counts the time since the newest checkpoint of one attempt."""

    def __init__(self, said: CheckpointSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._said, self._clock = said, clock
        self._saved_at = clock()
        self._took_s: float | None = None  # the newest save
        self._first_under_way = False

    @property
    def seconds(self) -> float | None:
        """Time between checkpoints; None: steps alone say, or the first one is still being written."""
        said = self._said
        if said.every_s is not None or said.every_steps is not None:
            return said.every_s
        if self._took_s is None:
            return None if self._first_under_way else FIRST_S
        hourly = ENDS_PER_HOUR if said.ends_per_hour is None else said.ends_per_hour
        return daly_interval_s(max(self._took_s, SHORTEST_SAVE_S), SECONDS_PER_HOUR / max(hourly, 1e-9))

    def due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after this step."""
        by_steps = self._said.every_steps is not None and step % self._said.every_steps == 0
        seconds = self.seconds
        return by_steps or (seconds is not None and self._clock() - self._saved_at >= seconds)

    def saved(self) -> None:
        """A checkpoint was taken now."""
        self._saved_at, self._first_under_way = self._clock(), True

    def measured(self, seconds: float) -> None:
        """What a save took of the run's time, its write beside the training counted as if training had waited."""
        self._took_s = seconds

    def remember(self, folder: RunFolder) -> None:
        """The newest save of the attempts before this one."""
        for event in folder.events():
            if event.kind is EventKind.CHECKPOINT and event.fields.get("seconds"):
                self._took_s = float(event.fields["seconds"]) + float(event.fields.get("held_s", 0.0))
