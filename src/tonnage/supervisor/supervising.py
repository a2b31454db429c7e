"""The supervisor's one loop: start the workers, watch them, hold them to limits, start them again or end the run.

What to do is decided in `runs/restarts.py` and `runs/guards.py`; here it is done and written down.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import field, replace
from datetime import UTC, datetime
from random import Random
from shutil import disk_usage
from types import FrameType
from typing import Final

from tonnage.runs.folder import RunFolder
from tonnage.runs.guards import Breach, SpendMeter, breach, forecast, must_kill, save_allowance_s, spent_usd
from tonnage.runs.job import load_job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import Heartbeat, hold_lock, read_heartbeat, workers_lock, write_heartbeat
from tonnage.runs.requests import cancel_request, clear_requests, read_request
from tonnage.runs.restarts import AttemptEnd, Finish, Restart, RestartPolicy, decide, describe_exit, end_as_asked
from tonnage.runs.secrets import mask_values
from tonnage.runs.states import RunReason, RunStatus
from tonnage.supervisor.fence import Fence, Superseded
from tonnage.supervisor.notices import Notice, NoticeWatch
from tonnage.supervisor.processes import become_subreaper, continue_below, kill_below
from tonnage.supervisor.progress import ProgressReader
from tonnage.supervisor.recording import Recorder, Reserve, Trouble
from tonnage.supervisor.telemetry import Telemetry
from tonnage.supervisor.verification import saved_since
from tonnage.supervisor.workers import Workers
from tonnage.values import dataclass

SHUTDOWN_NOTICE_S: Final = 30.0  # SIGTERM to the supervisor: what a machine that shuts down leaves at the least
END_MARGIN_S: Final = 2.0  # before a notice's deadline: kill what has not saved, and write the end down
PRIVATE: Final = 0o077
NO_ROOM_BYTES: Final = 4096  # less than a block of the usual file systems
ENDED_KINDS: Final = {
    RunStatus.SUCCEEDED: EventKind.SUCCEEDED,
    RunStatus.FAILED: EventKind.FAILED,
    RunStatus.STOPPED: EventKind.STOPPED,
    RunStatus.CANCELLED: EventKind.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the supervisor looks, and how long it waits."""

    tick_s: float = 0.2
    beat_s: float = 1.0
    forecast_s: float = 60.0
    grace_s: float = 60.0  # to save in, for workers whose supervisor died
    telemetry_end_s: float = 600.0  # for the last words to tracking and store
    journal_wait_s: float = 600.0  # for room on a full disk, at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The workers were asked to save and end: why, when, and until when they may take."""

    reason: RunReason
    at: datetime
    deadline_s: float | None = None  # of a notice
    kill_at: float | None = None  # on the supervisor's clock
    message: str = ""


def supervise(
    folder: RunFolder, *, pace: Pace | None = None, policy: RestartPolicy | None = None, reporting: bool = True
) -> None:
    """Look after a run until it has ended. Held where another supervisor does."""
    workers_umask = os.umask(PRIVATE)  # what the supervisor writes is the user's alone
    with hold_lock(folder.pid_file, wait_s=2.0):
        Supervisor(folder, pace=pace or Pace(), policy=policy, reporting=reporting, umask=workers_umask).run()


@dataclass
class _Session:
    """What this supervisor counts: since when it holds machines, and what was used before it."""

    started: float
    earlier_s: float = 0.0
    earlier_usd: float = 0.0
    history: list[AttemptEnd] = field(default_factory=list)


class Supervisor:
    """Looks after one run. The clock and the chance are arguments."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        pace: Pace,
        policy: RestartPolicy | None = None,
        reporting: bool = True,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        umask: int = -1,  # of the workers, whose caches others may share; -1: as ours
        notice_s: float = SHUTDOWN_NOTICE_S,  # what SIGTERM leaves
        requeued: bool = False,  # a scheduler starts the run again where its machine is taken away
    ) -> None:
        self._notice_s, self._requeued = notice_s, requeued
        self._folder, self._pace, self._clock = folder, pace, clock
        self._spec = folder.spec()
        self._job = load_job(folder.job_file.read_text(encoding="utf-8"), where=str(folder.job_file))
        mask_values(os.environ, self._job.secrets)
        self._policy = policy or RestartPolicy(max_restarts=self._spec.launch.max_restarts)
        self._random = random or Random()
        self._recorder, self._reserve = Recorder(folder), Reserve(folder)
        self._beating = Trouble("the heartbeat cannot be written")
        self._fence = Fence(folder)
        self._woken = threading.Event()
        self._notices = NoticeWatch(self._spec.launch.notices, woken=self._woken)
        self._telemetry = Telemetry(folder) if reporting else None
        self._umask = umask
        self._asked: Ask | None = None
        self._workers: Workers | None = None
        self._guarded = False
        self._next_beat = self._next_forecast = 0.0
        self._last_forecast: tuple[float | None, datetime] | None = None

    def run(self) -> None:
        """All starts of the run, until it ends."""
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with hold_lock(workers_lock(self._folder), wait_s=self._pace.grace_s + 20):
            pass  # the workers of a supervisor that died have ended
        self._progress = ProgressReader(self._folder, now=_now())
        before = read_heartbeat(self._folder)
        self._session = _Session(
            started=self._clock(),
            earlier_s=before.held_s if before else 0.0,
            earlier_usd=(before.spent_usd or 0.0) if before else 0.0,
        )
        self._reserve.keep()
        self._notices.start()
        if self._telemetry is not None:
            self._telemetry.start()
        try:
            self._end(self._until_finished())
        except Superseded:  # what is reported from here on would be of another's run
            self._telemetry = None
            kill_below(os.getpid())
            raise
        finally:
            self._notices.stop()
            if self._telemetry is not None:
                self._telemetry.finish(self._last_words_s())

    def _last_words_s(self) -> float:
        """For tracking and store. A machine that is taken away does not wait for them: the next start tells them."""
        preempted = self._folder.state().reason is RunReason.PREEMPTED
        return min(self._pace.telemetry_end_s, self._notice_s) if preempted else self._pace.telemetry_end_s

    def _until_finished(self) -> Finish:
        while True:
            ended = self._one_start()
            self._session.history.append(ended)
            asked = self._asked.reason if self._asked else None
            verdict = decide(self._session.history, self._policy, asked=asked, random=self._random.random())
            if isinstance(verdict, Finish):
                return self._explained(verdict, ended)
            self._announce_restart(verdict, ended)
            if not self._waited_out(verdict.delay_s):
                assert self._asked is not None
                return self._explained(end_as_asked(self._asked.reason), ended)

    # one start

    def _one_start(self) -> AttemptEnd:
        attempt = self._folder.state().attempt + 1
        kill_below(os.getpid(), spare=self._telemetry.pids if self._telemetry else frozenset())
        self._workers = workers = Workers(
            self._folder, self._job, attempt=attempt, grace_s=self._pace.grace_s, umask=self._umask
        )
        self._record(EventKind.STARTED, attempt=attempt, pid=workers.pid, command=self._job.command_line)
        self._progress.starts(_now())
        while (code := workers.exit_code()) is None:
            self._look()
            self._pause(workers)
        self._workers = None
        self._look_for_requests()  # workers may answer one sooner than it is seen here
        self._progress.read(_now())
        self._beat(force=True)
        seen = self._progress
        return AttemptEnd(
            code=code, step=seen.step_in_start, checkpoint_step=seen.checkpoint_step, changed=seen.changed,
            said=seen.said, no_room=disk_usage(self._folder.path).free < NO_ROOM_BYTES,
        )  # fmt: skip

    def _pause(self, workers: Workers) -> None:
        if self._woken.is_set():
            self._woken.clear()
            return
        workers.wait(self._pace.tick_s)

    def _waited_out(self, delay_s: float) -> bool:
        """False where the run is to end while it waits for its next start."""
        until = self._clock() + delay_s
        while (left := until - self._clock()) > 0:
            self._look()
            if self._asked is not None:
                return False
            self._woken.wait(min(left, self._pace.tick_s))
            self._woken.clear()
        return True

    # looking around

    def _look(self) -> None:
        """Everything that may end a start: a user's request, a notice of a cloud, a limit.

        Superseded, before anything is written, where the run was submitted again.
        """
        if self._fence.broken():
            raise Superseded
        self._recorder.flush()
        self._progress.read(_now())
        self._beat()
        if self._telemetry is not None:
            self._telemetry.look()
        self._look_for_requests()
        for notice in self._notices.taken():
            self._on_notice(notice)
        self._look_at_guards()
        late = self._asked and self._asked.kill_at is not None and self._clock() >= self._asked.kill_at
        if self._workers is not None and late:
            self._workers.kill()

    def _look_for_requests(self) -> None:
        cancel = read_request(cancel_request(self._folder))
        if cancel is not None and (self._asked is None or self._asked.reason is not RunReason.USER_CANCELLED):
            self._ask(Ask(reason=RunReason.USER_CANCELLED, at=_now(), kill_at=self._clock(), message=cancel.reason))
        stop = read_request(self._folder.stop_request)
        if stop is not None and self._asked is None:
            self._ask(Ask(reason=RunReason.USER_STOPPED, at=stop.at, message=stop.reason))

    def _on_notice(self, notice: Notice) -> None:
        self._record(
            EventKind.NOTICE, source=notice.source, deadline_s=notice.deadline_s, message=notice.message or None
        )
        if notice.deadline_s is None:  # advice only
            return
        kill_at = self._clock() + max(0.0, notice.deadline_s - END_MARGIN_S)
        if self._asked is None:
            message = f"notice from {notice.source}"
            ask = Ask(
                reason=RunReason.PREEMPTED, at=_now(), deadline_s=notice.deadline_s, kill_at=kill_at, message=message
            )
            self._ask(ask)
        elif self._asked.kill_at is None or kill_at < self._asked.kill_at:
            self._asked = replace(self._asked, kill_at=kill_at)

    def _look_at_guards(self) -> None:
        guard, meter = self._spec.guard, self._meter()
        save_s = save_allowance_s(guard, saves_s=list(self._progress.saves_s), steps_s=list(self._progress.steps_s))
        found = breach(guard, meter, save_s=save_s)
        if found is not None and not self._guarded:
            self._on_breach(found, save_s)
        if self._workers is not None and must_kill(guard, meter):
            self._workers.kill()

    def _on_breach(self, found: Breach, save_s: float) -> None:
        self._guarded = True
        self._record(EventKind.GUARD, limit=found.limit, value=found.value, message=found.message)
        if self._asked is None:
            # A hanging worker answers no request: an idle one gets the time of a save, the others until `must_kill`.
            kill_at = self._clock() + max(save_s, self._pace.grace_s) if found.limit == "idle_s" else None
            self._ask(Ask(reason=found.reason, at=_now(), kill_at=kill_at, message=found.message))

    def _ask(self, ask: Ask) -> None:
        self._asked = ask
        self._record(EventKind.STOPPING, reason=ask.reason.value, message=ask.message or None)
        if self._workers is None:
            return
        if ask.reason is RunReason.USER_CANCELLED:
            self._workers.kill()
        elif ask.deadline_s is not None:
            self._workers.give_notice(ask.deadline_s)
        else:
            self._workers.save_and_end(reason=ask.reason.value)

    # counting

    def _meter(self) -> SpendMeter:
        return SpendMeter(
            held_s=self._clock() - self._session.started,
            earlier_s=self._session.earlier_s,
            earlier_usd=self._session.earlier_usd,
            idle_s=(_now() - self._progress.active_at).total_seconds() if self._workers is not None else 0.0,
        )

    def _beat(self, *, force: bool = False) -> None:
        now = self._clock()
        if now < self._next_beat and not force:
            return
        self._next_beat = now + self._pace.beat_s
        if self._asked is not None and self._workers is not None:
            continue_below(self._workers.pid)
        meter = self._meter()
        if now >= self._next_forecast:
            self._foresee(meter)
        usd, end_at = self._last_forecast or (None, None)
        beat = Heartbeat(
            at=_now(),
            pid=os.getpid(),
            host=platform.node(),
            shim_pid=self._workers.pid if self._workers else None,
            held_s=meter.earlier_s + meter.held_s,
            spent_usd=spent_usd(self._spec.guard, meter),
            forecast_usd=usd,
            forecast_end_at=end_at,
        )
        try:
            write_heartbeat(self._folder, beat)
            self._beating.over()
        except OSError as error:
            self._beating.met(error)

    def _foresee(self, meter: SpendMeter) -> None:
        seen = forecast(
            self._spec.guard,
            meter,
            steps_left=self._progress.steps_left,
            steps_s=list(self._progress.steps_s),
            now=_now(),
        )
        if seen is None:
            return
        self._next_forecast = self._clock() + self._pace.forecast_s
        self._last_forecast = (seen.usd, seen.end_at)
        over = f"${seen.usd:,.2f} at the end is over the limit" if seen.over(self._spec.guard) else None
        self._record(
            EventKind.FORECAST,
            usd=seen.usd,
            low_usd=seen.low_usd,
            high_usd=seen.high_usd,
            end_at=seen.end_at.isoformat(),
            message=over,
        )

    # ends

    def _announce_restart(self, verdict: Restart, ended: AttemptEnd) -> None:
        self._record(
            EventKind.RESTARTING,
            reason=verdict.reason.value,
            delay_s=round(verdict.delay_s, 3),
            attempt=self._folder.state().attempt,
            lost_steps=ended.step - (ended.checkpoint_step or 0),
            message=verdict.message,
        )

    def _explained(self, verdict: Finish, ended: AttemptEnd) -> Finish:
        """What was saved, where the workers were asked to save; how training ended, where it did so early."""
        if verdict.state is RunStatus.SUCCEEDED:
            return replace(verdict, message="; ".join(filter(None, self._progress.outcome)))
        if self._asked is None or verdict.state is not RunStatus.STOPPED:
            return verdict
        saved = saved_since(self._progress.checkpoint, self._asked.at)
        how = "" if saved.fine else f"; the workers: {describe_exit(ended.code)}"
        return replace(verdict, message=f"{saved.message}{how}")

    def _end(self, finish: Finish) -> None:
        reason = finish.reason.value if finish.reason else None
        if self._asked is not None:
            clear_requests(self._folder)
        self._reserve.release()  # the workers have ended: no other process uses this space
        again = self._requeued and finish.reason is RunReason.PREEMPTED
        self._record(
            EventKind.RESTARTING if again else ENDED_KINDS[finish.state],
            reason=reason,
            step=self._progress.step_in_start,
            message=finish.message or None,
        )
        until = self._clock() + self._pace.journal_wait_s
        while not self._recorder.flush() and self._clock() < until:
            time.sleep(1.0)

    def _record(self, kind: EventKind, **fields: object) -> None:
        self._recorder.record(kind, _now(), **fields)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._notices.add(Notice(source=signal.Signals(number).name, deadline_s=self._notice_s))


def _now() -> datetime:
    return datetime.now(UTC)
