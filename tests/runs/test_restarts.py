"""When a run is started again, after how long, and when it ends: a table of histories, and properties."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.runs.restarts import AttemptEnd, Finish, Restart, RestartPolicy, decide, delay_s, describe_exit
from tonnage.runs.states import RunReason, RunStatus, WorkerExit

POLICY = RestartPolicy(max_restarts=3, same_step=3)
KILLED = 128 + signal.SIGKILL


def ended(code: int, step: int = 7, checkpoint_step: int | None = 5) -> AttemptEnd:
    return AttemptEnd(code=code, step=step, checkpoint_step=checkpoint_step)


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (WorkerExit.DONE, RunStatus.SUCCEEDED, None),
        (WorkerExit.BAD_INPUT, RunStatus.FAILED, RunReason.BAD_INPUT),
        (WorkerExit.DISK_FULL, RunStatus.FAILED, RunReason.DISK_FULL),
        (WorkerExit.DIVERGED, RunStatus.FAILED, RunReason.DIVERGED),
        (WorkerExit.OUT_OF_MEMORY, RunStatus.FAILED, RunReason.OUT_OF_MEMORY),
        (WorkerExit.STOPPED, RunStatus.STOPPED, RunReason.USER_STOPPED),
    ],
)
def test_exits_that_a_restart_would_not_mend(code: int, state: RunStatus, reason: RunReason | None) -> None:
    """Each ends the run at once, with its own reason."""
    verdict = decide([ended(code)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert (verdict.state, verdict.reason) == (state, reason)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(WorkerExit.PREEMPTED, RunReason.PREEMPTED), (KILLED, RunReason.WORKER_KILLED), (1, RunReason.WORKER_KILLED)],
)
def test_interruptions_are_started_again(code: int, reason: RunReason) -> None:
    """SIGTERM, SIGKILL and a crash lead to another start, each under its name."""
    verdict = decide([ended(code)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Restart)
    assert verdict.reason is reason


@pytest.mark.parametrize("code", [WorkerExit.PREEMPTED, WorkerExit.STOPPED, KILLED, 1])
@pytest.mark.parametrize("asked", [RunReason.PREEMPTED, RunReason.COST_LIMIT, RunReason.USER_STOPPED])
def test_what_was_asked_for_is_no_crash(code: int, asked: RunReason) -> None:
    """Workers that were asked to end are not started again, however they ended."""
    assert decide([ended(code)], POLICY, asked=asked, random=0.5) == Finish(state=RunStatus.STOPPED, reason=asked)


def test_a_network_that_fails_is_told_as_such() -> None:
    """Tried again as patiently as a killed worker, and not given up for failing at one step; then with its cause."""
    away = AttemptEnd(
        code=WorkerExit.UNREACHABLE, step=0, checkpoint_step=None, said="s3://b/rows cannot be reached: reset"
    )
    for count in (1, 2, 3):
        verdict = decide([away] * count, POLICY, asked=None, random=0.5)
        assert isinstance(verdict, Restart)
        assert verdict.reason is RunReason.NETWORK
    ended = decide([away] * 4, POLICY, asked=None, random=0.5)
    assert ended == Finish(state=RunStatus.FAILED, reason=RunReason.NETWORK, message=away.said)


@pytest.mark.parametrize(("code", "goes_on"), [(1, False), (KILLED, False), (WorkerExit.PREEMPTED, True)])
def test_a_crash_on_a_full_disk_is_told_as_one(code: int, goes_on: bool) -> None:
    """Launchers do not say why their workers crashed: where the disk is full, that is the reason, and no restart."""
    verdict = decide([AttemptEnd(code=code, step=7, checkpoint_step=5, no_room=True)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Restart) is goes_on
    assert verdict.reason is (RunReason.PREEMPTED if goes_on else RunReason.DISK_FULL)


def test_a_smaller_micro_batch_is_a_gain() -> None:
    """Out of memory at one step, again and again, each time with less in a batch: started again."""
    history = [AttemptEnd(code=1, step=7, checkpoint_step=5, changed=True)] * 6
    assert isinstance(decide(history, POLICY, asked=None, random=0.5), Restart)


def test_a_failure_carries_the_workers_words() -> None:
    """What the worker said of its input is the run's message."""
    told = AttemptEnd(code=WorkerExit.BAD_INPUT, step=0, checkpoint_step=None, said="no column 'text'")
    verdict = decide([told], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.message == "no column 'text'"


def test_cancelled_is_a_state_of_its_own() -> None:
    """Asked to end without a save: cancelled."""
    verdict = decide([ended(KILLED)], POLICY, asked=RunReason.USER_CANCELLED, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.state is RunStatus.CANCELLED


def test_a_run_that_finishes_while_it_is_asked_to_stop_has_succeeded() -> None:
    """Its last step was its last step."""
    verdict = decide([ended(WorkerExit.DONE)], POLICY, asked=RunReason.COST_LIMIT, random=0.5)
    assert verdict == Finish(state=RunStatus.SUCCEEDED)


def test_no_progress_ends_it() -> None:
    """Ends at different steps, but never a newer checkpoint: refused after `max_restarts` restarts, and said so."""
    history = [ended(KILLED, step=step) for step in (7, 8, 6)]
    assert isinstance(decide(history, POLICY, asked=None, random=0.5), Restart)
    history += [ended(KILLED, step=9), ended(KILLED, step=8)]
    verdict = decide(history, POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.reason is RunReason.RESTARTS_SPENT
    assert "without a newer checkpoint" in verdict.message


def test_a_step_that_always_fails_ends_it_sooner() -> None:
    """The same step three times, with restarts to spare: the step itself is the fault."""
    verdict = decide([ended(1)] * 3, RestartPolicy(max_restarts=100), asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert "step 7" in verdict.message


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_a_run_that_gains_ground_is_never_refused(gains: list[int]) -> None:
    """Any number of interruptions, a newer checkpoint in each start: always another start, without a long wait."""
    step, history = 0, []
    for gain in gains:
        step += gain
        history.append(ended(KILLED, step=step, checkpoint_step=step))
        verdict = decide(history, POLICY, asked=None, random=0.5)
        assert isinstance(verdict, Restart)
        assert verdict.delay_s <= POLICY.first_delay_s


@given(st.integers(0, 40), st.floats(0, 1))
def test_back_off_grows_to_its_bound(without_gain: int, chance: float) -> None:
    """Each delay lies within the jitter of a doubled one, never over the longest."""
    delay = delay_s(without_gain, POLICY, random=chance)
    whole = min(300.0, 2.0 ** max(0, without_gain - 1))
    assert whole * 0.75 <= delay <= whole * 1.25


def test_exits_in_words() -> None:
    """A signal by its name; a number that is no signal as a number."""
    assert describe_exit(128 + signal.SIGTERM) == "killed by SIGTERM"
    assert describe_exit(250) == "ended with exit code 250"
