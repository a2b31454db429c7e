"""The supervisor over a worker that pretends: starts again, gives up, holds limits, and leaves nothing behind."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage.runs import EventKind, RunReason, RunStatus
from tonnage.runs.guards import billed_usd
from tonnage.runs.liveness import is_held, observed_state, read_heartbeat, workers_lock
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.spec import GuardSpec, LaunchSpec
from tonnage.runs.states import WorkerExit

from .conftest import Bench, is_alive

FULL_DISK = """
import errno, os
from pathlib import Path
def fails(do):
    def work(*arguments, **named):
        if Path({full!r}).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return do(*arguments, **named)
    return work
os.write, os.replace, os.mkdir = fails(os.write), fails(os.replace), fails(os.mkdir)
import sys
sys.stderr.write = fails(sys.stderr.write)
"""  # of the supervisor alone, as long as a file is there


def test_a_run_to_its_end(bench: Bench) -> None:
    """Started, trained, succeeded; log, heartbeat and result are there, and nobody holds the run any more."""
    state = bench.run(steps=12)
    assert (state.state, state.attempt, state.step) == (RunStatus.SUCCEEDED, 1, 12), bench.words()
    assert bench.folder.log_file.read_text().split() == [w for n in range(1, 13) for w in ("step", str(n))]
    assert read_heartbeat(bench.folder) is not None
    assert bench.is_quiet()


def test_a_killed_worker_is_started_again(bench: Bench) -> None:
    """SIGKILL in step 8: back-off, a second start from the checkpoint of step 5, two steps done again, success."""
    state = bench.run(steps=12, crash_at=8)
    assert (state.state, state.attempt) == (RunStatus.SUCCEEDED, 2), bench.words()
    restarting = next(event for event in bench.folder.events() if event.kind is EventKind.RESTARTING)
    assert restarting.fields["reason"] == RunReason.WORKER_KILLED.value
    assert restarting.fields["lost_steps"] == 2
    assert "SIGKILL" in restarting.fields["message"]


@pytest.mark.slow
def test_a_step_that_always_fails_is_given_up(bench: Bench) -> None:
    """The same step three times: failed, with the step in its message."""
    state = bench.run(steps=12, crash_at=8, crash_starts=99)
    assert (state.state, state.reason, state.attempt) == (RunStatus.FAILED, RunReason.RESTARTS_SPENT, 3), bench.words()
    assert "step 7" in state.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (WorkerExit.DIVERGED, RunReason.DIVERGED),
        pytest.param(WorkerExit.BAD_INPUT, RunReason.BAD_INPUT, marks=pytest.mark.slow),
        pytest.param(WorkerExit.DISK_FULL, RunReason.DISK_FULL, marks=pytest.mark.slow),
    ],
)
def test_ends_that_are_final(bench: Bench, code: int, reason: RunReason) -> None:
    """One start, and the reason the worker gave."""
    state = bench.run(end_at=3, end_code=code)
    assert (state.state, state.reason, state.attempt) == (RunStatus.FAILED, reason, 1), bench.words()


def test_stop_saves_and_resume_goes_on(bench: Bench) -> None:
    """The file `stop`: saved, verified, stopped; a new supervisor goes on from there to the end."""
    bench.start(steps=100_000)
    bench.until_step(7)
    write_request(bench.folder.stop_request, by="test", reason="enough")
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.USER_STOPPED), bench.words()
    assert state.message.startswith(f"saved step {state.checkpoint_step} after")
    again = bench.run(steps=state.step + 5)
    assert (again.state, again.step) == (RunStatus.SUCCEEDED, state.step + 5), bench.words()
    assert f'"step": {state.step + 1},' in bench.metrics()


def test_cancel_ends_at_once(bench: Bench) -> None:
    """No save, and not one process is left, not even a worker that hears nothing."""
    bench.start(steps=100, hang_at=4)
    bench.until_step(3)
    workers = bench.worker_pids()
    write_request(cancel_request(bench.folder), by="test", reason="now")
    bench.until(bench.is_quiet)
    assert bench.folder.state().state is RunStatus.CANCELLED
    assert not any(is_alive(pid) for pid in workers)


def test_sigterm_to_the_supervisor_is_a_notice(bench: Bench) -> None:
    """As a machine shuts down: noted, the workers save, the run is stopped as preempted."""
    supervisor = bench.start(steps=100_000)
    bench.until_step(3)
    supervisor.send_signal(signal.SIGTERM)
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.PREEMPTED), bench.words()
    assert "verified" in state.message
    assert EventKind.NOTICE in bench.kinds()


@pytest.mark.slow
def test_a_worker_preempted_alone_is_started_again(bench: Bench) -> None:
    """SIGTERM to the worker, from whomever: it saves, and the run goes on in another start without lost steps."""
    bench.start(steps=60, step_s=0.02)
    bench.until_step(6)
    os.kill(bench.worker_pids()[0], signal.SIGTERM)
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.attempt) == (RunStatus.SUCCEEDED, 2), bench.words()
    restarting = next(event for event in bench.folder.events() if event.kind is EventKind.RESTARTING)
    assert (restarting.fields["reason"], restarting.fields["lost_steps"]) == (RunReason.PREEMPTED.value, 0)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))])
def test_the_supervisor_killed_at_a_random_step(bench: Bench, seed: int) -> None:
    """SIGKILL: its workers save and end, the run is lost by its journal, and a new supervisor takes it to its end."""
    supervisor = bench.start(steps=100_000)
    bench.until_step(random.Random(seed).randint(2, 25))
    workers = bench.worker_pids()
    supervisor.kill()
    supervisor.wait()
    bench.until(bench.is_quiet)
    state = observed_state(bench.folder)
    assert (state.state, state.reason) == (RunStatus.LOST, RunReason.SUPERVISOR_LOST), bench.words()
    assert not any(is_alive(pid) for pid in workers)
    saved = state.checkpoint_step
    assert saved is not None
    again = bench.run(steps=saved + 3)
    assert again.state is RunStatus.SUCCEEDED, bench.words()


@pytest.mark.slow
def test_workers_that_hear_nothing_do_not_outlive_their_supervisor(bench: Bench) -> None:
    """Nobody would hold them to their limits: after the grace they are killed."""
    supervisor = bench.start(steps=100, hang_at=3)
    bench.until_step(2)
    workers = bench.worker_pids()
    supervisor.kill()
    supervisor.wait()
    bench.until(bench.is_quiet)
    assert not any(is_alive(pid) for pid in workers)


@pytest.mark.slow
def test_the_shim_killed(bench: Bench) -> None:
    """The process between supervisor and workers dies: the workers end, none runs twice, the run goes on."""
    bench.start(steps=60, step_s=0.02)
    bench.until_step(4)
    workers = bench.worker_pids()
    os.kill(bench.shim_pid(), signal.SIGKILL)
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.attempt) == (RunStatus.SUCCEEDED, 2), bench.words()
    assert not any(is_alive(pid) for pid in workers)


@pytest.mark.slow
def test_two_supervisors_never(bench: Bench) -> None:
    """A second one leaves at once, with the first undisturbed."""
    bench.start(steps=100_000)
    bench.until_step(2)
    second = bench.start(steps=100_000)
    assert second.wait(30) != 0
    assert "Held" in (bench.folder.path / "supervisor.log").read_text()
    write_request(cancel_request(bench.folder), by="test", reason="")
    bench.until(bench.is_quiet)
    assert bench.kinds().count(EventKind.STARTED) == 1


def test_spend_under_a_slow_down(make_bench: Callable[..., Bench]) -> None:
    """Steps turn fifty times as slow: stopped by the cost limit, spend within the cap and one quantum, audited."""
    guard = GuardSpec(max_cost_usd=0.03, usd_per_hour=36.0, billing_quantum_s=0.5)  # three seconds
    bench = make_bench(guard=guard)
    state = bench.run(steps=100_000, step_s=0.02, slow_from=20, slow_factor=50)
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.COST_LIMIT), bench.words()
    audit = next(event for event in bench.folder.events() if event.kind is EventKind.GUARD)
    assert audit.fields["limit"] == "max_cost_usd"
    beat = read_heartbeat(bench.folder)
    assert beat is not None
    assert beat.spent_usd is not None
    assert beat.spent_usd <= 0.03 + 0.5 / 3600 * 36
    assert beat.spent_usd == pytest.approx(billed_usd(beat.held_s, 36.0, 0.5))


@pytest.mark.slow
def test_a_hanging_worker_is_killed_at_the_limit(make_bench: Callable[..., Bench]) -> None:
    """It answers no request: killed inside one quantum over the cap; the newest checkpoint is verified and named."""
    bench = make_bench(guard=GuardSpec(max_cost_usd=0.1, usd_per_hour=36.0, billing_quantum_s=1.5))
    state = bench.run(steps=100, hang_at=7)
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.COST_LIMIT), bench.words()
    assert "step 5 is the newest, verified" in state.message
    beat = read_heartbeat(bench.folder)
    assert beat is not None
    assert beat.spent_usd is not None
    assert beat.spent_usd <= 0.1 + 1.5 / 3600 * 36


@pytest.mark.slow
def test_an_idle_run_is_stopped(make_bench: Callable[..., Bench]) -> None:
    """No step for the time given: stopped as idle, the hanging worker killed after the grace."""
    bench = make_bench(guard=GuardSpec(idle_s=1.0))
    state = bench.run(steps=100, hang_at=7)
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.IDLE), bench.words()


@pytest.mark.slow
def test_a_warning_before_the_limit(make_bench: Callable[..., Bench]) -> None:
    """The forecast says, long before, that the cap will not do."""
    bench = make_bench(guard=GuardSpec(max_cost_usd=0.05, usd_per_hour=36.0, billing_quantum_s=0.1))
    bench.run(steps=2000, step_s=0.02)
    forecasts = [event for event in bench.folder.events() if event.kind is EventKind.FORECAST]
    assert "over the limit" in forecasts[0].fields["message"], bench.words()
    assert forecasts[0].fields["low_usd"] <= forecasts[0].fields["usd"] <= forecasts[0].fields["high_usd"]


def test_a_full_disk_under_the_log(bench: Bench) -> None:
    """Where the log cannot be written the worker goes on as if it could."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    bench.folder.log_file.symlink_to(full)
    state = bench.run(steps=12, chatter_bytes=5000)
    assert state.state is RunStatus.SUCCEEDED, bench.words()


@pytest.mark.skipif(sys.platform != "linux", reason="stopped processes are found by their state")
def test_a_stopped_worker_hears_the_request(bench: Bench) -> None:
    """SIGSTOP, as Ctrl-Z sends it to a group: asked to save, the worker is woken, saves and ends."""
    bench.start(steps=100_000)
    bench.until_step(5)
    (worker,) = bench.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    write_request(bench.folder.stop_request, by="test", reason="")
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.message.endswith("verified")) == (RunStatus.STOPPED, True), bench.words()


def test_a_full_disk_under_the_whole_run(bench: Bench) -> None:
    """Journal, heartbeat and the supervisor's own log cannot be written: it goes on, and the end is written later."""
    full = bench.folder.path / "full"
    bench.start(before=FULL_DISK.format(full=str(full)), steps=100_000, end_at=400, end_code=WorkerExit.DISK_FULL)
    bench.until_step(5)
    full.touch()
    bench.until(lambda: not is_held(workers_lock(bench.folder)))
    assert not bench.is_quiet(), bench.words()
    full.unlink()
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.reason) == (RunStatus.FAILED, RunReason.DISK_FULL), bench.words()


@pytest.mark.slow
def test_a_damaged_checkpoint_is_no_save(bench: Bench) -> None:
    """What was saved is verified by its hashes: a byte changed on the disk is told."""
    bench.start(steps=100_000)
    bench.until_step(7)
    write_request(bench.folder.stop_request, by="test", reason="")
    bench.until(bench.is_quiet)
    step = bench.folder.state().checkpoint_step
    (bench.folder.checkpoints / f"step-{step:08}" / "weights").write_text("other")
    from tonnage.supervisor.verification import checkpoint_fault

    fault = checkpoint_fault(bench.folder.checkpoints / f"step-{step:08}")
    assert fault is not None
    assert "sha256 differs" in fault


@pytest.mark.slow
def test_back_off_can_be_interrupted(make_bench: Callable[..., Bench]) -> None:
    """A stop that comes while the run waits for its next start ends it there."""
    bench = make_bench(launch=LaunchSpec(max_restarts=50))
    bench.start(steps=12, end_at=2, end_code=1)
    bench.until(lambda: EventKind.RESTARTING in bench.kinds())
    write_request(bench.folder.stop_request, by="test", reason="")
    bench.until(bench.is_quiet)
    assert bench.folder.state().state in {RunStatus.STOPPED, RunStatus.FAILED}


def test_a_stop_that_the_workers_see_first(bench: Bench) -> None:
    """They may have saved and ended before the supervisor looks: what was asked and saved is told all the same."""
    write_request(bench.folder.stop_request, by="test", reason="before the start")
    state = bench.run(steps=100_000)
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.USER_STOPPED), bench.words()
    assert state.message.endswith("verified")
    assert EventKind.STOPPING in bench.kinds()
