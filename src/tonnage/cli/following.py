"""Watch a run: its log as it is written, a line of state on a terminal, what happened in words, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tonnage.api.run_listing import duration
from tonnage.cli.meter import Meter

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.journal import Event
    from tonnage.runs.logs import RunLogs
    from tonnage.runs.states import RunState

LOOK_EVERY_S: Final = 0.2
ASK_PLACE_EVERY_S: Final = 2.0
LOST_TO_PREEMPTION: Final = 5
INTERRUPTED: Final = 130


def follow(
    folder: RunFolder,
    *,
    print_line: Callable[[str], None],
    quiet: bool,
    logs: RunLogs,
    settle: Callable[[], str] | None = None,
) -> RunState:
    """Until the run has ended and its supervisor is done. KeyboardInterrupt leaves the run as it is.

    `logs`: those whose lines are printed.

    `settle` asks the place of a run without a supervisor here whether it still waits; what it gives back is a line.
    """
    from tonnage.runs.liveness import has_supervisor, observed_state
    from tonnage.runs.progress import read_progress
    from tonnage.runs.states import with_mark
    from tonnage.runs.tail import Tail

    journal = Tail(folder.journal_file)
    list(journal.events())
    state = observed_state(folder)
    ask_at, settled = time.monotonic(), ""
    with Meter(quiet=quiet) as meter:
        while True:
            alive = has_supervisor(folder)
            if settle is not None and (not alive or folder.mirror_file.exists()) and time.monotonic() >= ask_at:
                ask_at = time.monotonic() + ASK_PLACE_EVERY_S
                settled = settle()
            events = list(journal.events())
            if events or not alive:
                state = observed_state(folder)
            for line in logs.lines():
                meter.show("")
                print_line(line)
            for event in events:
                if words := in_words(event):
                    meter.show("")
                    print_line(words)
            if state.state.ended and not alive:
                return state
            shown = status_line(folder, with_mark(state, read_progress(folder.path)))
            meter.show(f"{shown}  {settled}" if settled else shown)
            time.sleep(LOOK_EVERY_S)


def in_words(event: Event) -> str:
    """An event as a line between the log's lines; empty for those a reader need not see."""
    from tonnage.runs.journal import EventKind

    fields = event.fields
    message = fields.get("message", "")
    texts = {
        EventKind.NOTICE: f"interruption notice from {fields.get('source')}: {_seconds(fields.get('deadline_s'))}",
        EventKind.RESTARTING: (
            f"{message}; its place starts it again"
            if "delay_s" not in fields
            else f"{message}; starting again in {fields['delay_s']} s, "
            f"{fields.get('lost_steps', 0)} steps are done again"
        ),
        EventKind.RESUMED: message or f"resumed at step {fields.get('step')}",
        EventKind.OUT_OF_MEMORY: (
            f"out of memory with micro-batch {fields.get('micro_batch')}: {fields.get('next_micro_batch')} from now on"
        ),
        EventKind.CHECKPOINT_INVALID: f"a checkpoint is not valid: {message}",
        EventKind.GUARD: f"limit {fields.get('limit')} reached: {message}",
        EventKind.STOPPING: f"asked to save and end: {fields.get('reason')}",
        EventKind.FORECAST: f"forecast: {message}" if message else "",
        EventKind.TRACKING_LOST: f"tracking at {fields.get('uri')} does not answer; the run goes on",
    }
    said = texts.get(event.kind, "")
    return f"tonnage: {said}" if said else ""


def status_line(folder: RunFolder, state: RunState) -> str:
    """Name, state, step, time and money so far."""
    from tonnage.runs.liveness import read_heartbeat
    from tonnage.runs.tail import newest_values

    parts = [folder.path.name, state.state.value]
    if values := newest_values(folder.metrics_file):
        of = f" of {state.total_steps:,}" if state.total_steps else ""
        parts.append(f"step {state.step:,}{of}")
        if values.get("loss") is not None:
            parts.append(f"loss {values['loss']:.4g}")
    if state.started_at is not None:
        parts.append(duration((datetime.now(UTC) - state.started_at).total_seconds()))
    beat = read_heartbeat(folder)
    if beat is not None and beat.spent_usd is not None:
        parts.append(f"${beat.spent_usd:,.2f}")
    if beat is not None and beat.forecast_end_at is not None:
        left = (beat.forecast_end_at - datetime.now(UTC)).total_seconds()
        at_end = f", ${beat.forecast_usd:,.2f} at the end" if beat.forecast_usd is not None else ""
        parts.append(f"{duration(left)} left{at_end}")
    return "  ".join(parts) + "  (Ctrl-C leaves it running)"


def exit_code(state: RunState) -> int:
    """The exit code of a run watched to its end; docs/run.md has the table."""
    from tonnage.runs.states import RunReason, RunStatus

    if state.state is RunStatus.SUCCEEDED:
        return 0
    if state.reason is RunReason.PREEMPTED:
        return LOST_TO_PREEMPTION
    if state.reason in {RunReason.COST_LIMIT, RunReason.TIME_LIMIT, RunReason.IDLE}:
        return 4
    if state.reason is RunReason.BAD_INPUT:
        return 2
    return INTERRUPTED if state.reason in {RunReason.USER_STOPPED, RunReason.USER_CANCELLED} else 1


def last_words(folder: RunFolder, state: RunState) -> str:
    """How a run ended, and what to do next."""
    from tonnage.runs.states import RunStatus

    name = folder.path.name
    why = f" ({state.reason.value})" if state.reason else ""
    said = f": {state.message}" if state.message else ""
    then = {
        RunStatus.SUCCEEDED: f"`tonnage show {name}` sets measured beside predicted",
        RunStatus.FAILED: f"`tonnage logs {name}` shows its words",
        RunStatus.STOPPED: f"`tonnage resume {name}` goes on",
        RunStatus.CANCELLED: f"`tonnage resume {name}` goes on from its newest checkpoint",
        RunStatus.LOST: f"`tonnage resume {name}` goes on from its newest checkpoint",
    }
    return f"{name} {state.state.value}{why}{said}; {then[state.state]}"


def to_stderr(line: str) -> None:
    """A line of the log beside data on stdout."""
    sys.stderr.write(line + "\n")


def _seconds(value: float | None) -> str:
    return "no date yet" if value is None else f"{value:.0f} s left"
