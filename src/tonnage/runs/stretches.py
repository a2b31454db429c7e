"""The stretches of a run in which it had one configuration: `resume` may give it other processes or another device.

A measured row is of one configuration, so figures are taken from the newest stretch alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import LaunchSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From one submission to the next that asked for something else."""

    runner: str
    processes: int
    device: str  # as asked: auto, cpu or cuda
    since: datetime | None  # None: from the start
    step: int  # where it began

    def like(self, other: Stretch) -> bool:
        """Whether both compute alike; a runner is only the way to start it."""
        return (self.processes, self.device) == (other.processes, other.device)


def stretches_of(events: Iterable[Event], launch: LaunchSpec) -> tuple[Stretch, ...]:
    """Those with steps, and the newest; oldest first. A submission that does not say how counts as the one before, or
    as `launch`."""
    found: list[Stretch] = []
    reached = 0
    for event in events:
        if event.kind is EventKind.SUBMITTED:
            new = _stretch(event, found[-1] if found else None, launch, reached)
            if not found or not new.like(found[-1]):
                found.append(new)
        elif event.kind is EventKind.RESUMED:
            reached = int(event.fields.get("step", 0))
            if found and found[-1].step > reached:
                found[-1] = replace(found[-1], step=reached)
        else:
            reached = max(reached, int(event.fields.get("step", 0)))
    if not found:
        return (_stretch(None, None, launch, 0),)
    return (*(one for one, after in pairwise(found) if after.step > one.step), found[-1])


def _stretch(event: Event | None, before: Stretch | None, launch: LaunchSpec, reached: int) -> Stretch:
    said, known = ({} if event is None else event.fields), before or launch
    return Stretch(
        runner=str(said.get("runner", known.runner)),
        processes=int(said.get("processes", known.processes)),
        device=str(said.get("device", known.device)),
        since=None if before is None or event is None else event.at,
        step=reached,
    )
