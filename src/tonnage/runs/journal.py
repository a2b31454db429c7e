"""What happened in a run, one line of JSON per event, appended and never rewritten."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from tonnage.values import dataclass

CUT: Final = "\x18"  # CAN, the control character «cancel»: ends a line whose writer was killed in the middle


class EventKind(StrEnum):
    """What can happen. The fields each kind carries are beside it; `message` may come with all."""

    SUBMITTED = "submitted"  # name, runner, processes, device, place
    STARTED = "started"  # attempt, pid, command
    TRAINING = "training"  # step: the first step (or preflight) is over, steps follow
    PREFLIGHT = "preflight"  # micro_batch, tokens, peak_bytes
    OUT_OF_MEMORY = "out_of_memory"  # micro_batch, next_micro_batch, tokens, step
    MICRO_BATCH = "micro_batch"  # micro_batch, next_micro_batch: asked for, at the next start
    CHECKPOINT = "checkpoint"  # step, path, seconds, held_s, bytes
    CHECKPOINT_INVALID = "checkpoint_invalid"  # path, message
    RESUMED = "resumed"  # step, path, lost_steps
    EVALUATED = "evaluated"  # step, metrics, split; finished: of the model the run leaves
    EARLY_STOP = "early_stop"  # step, best_step, evaluations
    BEST = "best"  # step, path: the finished model is that of this step
    NOTICE = "notice"  # source, deadline_s
    INTERRUPTED = "interrupted"  # signal, step
    CRASHED = "crashed"  # message: the exception that ended a worker
    RESTARTING = "restarting"  # reason, delay_s, attempt
    STOPPING = "stopping"  # reason
    GUARD = "guard"  # limit, value: the audit line of a limit reached
    FORECAST = "forecast"  # usd, end_at
    TRACKING_LOST = "tracking_lost"  # uri
    TRACKING_SYNCED = "tracking_synced"  # uri, points
    EXPORTING = "exporting"  # port (null: none was free), wanted
    REGISTERED = "registered"  # model, version, alias
    MEASURED = "measured"  # rows
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # reason
    STOPPED = "stopped"  # reason
    CANCELLED = "cancelled"  # reason
    LOST = "lost"  # reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a journal."""

    kind: EventKind
    at: datetime  # UTC
    who: str  # "supervisor", "rank0", "cli"
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The line, without its line break."""
        head = {"at": self.at.isoformat(), "who": self.who, "kind": self.kind.value}
        return json.dumps({**head, **self.fields}, ensure_ascii=False, allow_nan=False)


_FORECAST: Final = '"kind": "forecast"'


def parse_event(line: str) -> Event:
    """One line read back. ValueError where it is not an event."""
    fields = from_json(line)
    kind, at, who = fields.pop("kind"), fields.pop("at"), fields.pop("who")
    return Event(kind=EventKind(kind), at=datetime.fromisoformat(at), who=who, fields=fields)


def read_journal(path: Path, *, faults: list[str] | None = None, brief: bool = False) -> Iterator[Event]:
    """Every whole line, oldest first; nothing where there is no journal yet.

    A kill can cut a line short: the last one without its line break, and one that a later writer marked as cut, are
    left out, since no writer finished them. A line in the middle that cannot be read is left out too and reported in
    `faults`; ValueError names it where no list is given. `brief`: of forecasts in a row the last alone, which is
    most of the lines of a long run.
    """
    if not path.exists():
        return
    text = path.read_bytes().decode("utf-8", errors="replace")
    lines = text.split("\n")[:-1]
    if brief:
        forecasts = [_FORECAST in line for line in lines]
        followed = [one and after for one, after in pairwise([*forecasts, False])]
    for number, line in enumerate(lines, start=1):
        if not line or line.endswith(CUT) or (brief and followed[number - 1]):
            continue
        try:
            yield parse_event(line)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            fault = f"{path}:{number}: not an event: {error}"
            if faults is None:
                raise ValueError(fault) from error
            faults.append(fault)
