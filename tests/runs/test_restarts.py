"""When a run is started again, after how long, and when it ends: a table of histories, and properties."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.runs.restarts import Ended, Finish, Restart, RestartPolicy, decide, delay_s, describe_exit
from tonnage.runs.states import Reason, State, WorkerExit

POLICY = RestartPolicy(max_restarts=3, same_step=3)
KILLED = 128 + signal.SIGKILL


def ended(code: int, step: int = 7, checkpoint_step: int | None = 5) -> Ended:
    return Ended(code=code, step=step, checkpoint_step=checkpoint_step)


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (WorkerExit.DONE, State.SUCCEEDED, None),
        (WorkerExit.BAD_INPUT, State.FAILED, Reason.BAD_INPUT),
        (WorkerExit.DISK_FULL, State.FAILED, Reason.DISK_FULL),
        (WorkerExit.DIVERGED, State.FAILED, Reason.DIVERGED),
        (WorkerExit.OUT_OF_MEMORY, State.FAILED, Reason.OUT_OF_MEMORY),
        (WorkerExit.STOPPED, State.STOPPED, Reason.USER_STOPPED),
    ],
)
def test_exits_that_a_restart_would_not_mend(code: int, state: State, reason: Reason | None) -> None:
    """Each ends the run at once, with its own reason."""
    verdict = decide([ended(code)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert (verdict.state, verdict.reason) == (state, reason)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(WorkerExit.PREEMPTED, Reason.PREEMPTED), (KILLED, Reason.WORKER_KILLED), (1, Reason.WORKER_KILLED)],
)
def test_interruptions_are_started_again(code: int, reason: Reason) -> None:
    """SIGTERM, SIGKILL and a crash lead to another start, each under its name."""
    verdict = decide([ended(code)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Restart)
    assert verdict.reason is reason


@pytest.mark.parametrize("code", [WorkerExit.PREEMPTED, WorkerExit.STOPPED, KILLED, 1])
@pytest.mark.parametrize("asked", [Reason.PREEMPTED, Reason.COST_LIMIT, Reason.USER_STOPPED])
def test_what_was_asked_for_is_no_crash(code: int, asked: Reason) -> None:
    """Workers that were asked to end are not started again, however they ended."""
    assert decide([ended(code)], POLICY, asked=asked, random=0.5) == Finish(state=State.STOPPED, reason=asked)


def test_a_network_that_fails_is_told_as_such() -> None:
    """Tried again as patiently as a killed worker, and not given up for failing at one step; then with its cause."""
    away = Ended(code=WorkerExit.UNREACHABLE, step=0, checkpoint_step=None, said="s3://b/rows cannot be reached: reset")
    for count in (1, 2, 3):
        verdict = decide([away] * count, POLICY, asked=None, random=0.5)
        assert isinstance(verdict, Restart)
        assert verdict.reason is Reason.NETWORK
    ended = decide([away] * 4, POLICY, asked=None, random=0.5)
    assert ended == Finish(state=State.FAILED, reason=Reason.NETWORK, message=away.said)


@pytest.mark.parametrize(("code", "goes_on"), [(1, False), (KILLED, False), (WorkerExit.PREEMPTED, True)])
def test_a_crash_on_a_full_disk_is_told_as_one(code: int, goes_on: bool) -> None:
    """Launchers do not say why their workers crashed: where the disk is full, that is the reason, and no restart."""
    verdict = decide([Ended(code=code, step=7, checkpoint_step=5, no_room=True)], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Restart) is goes_on
    assert verdict.reason is (Reason.PREEMPTED if goes_on else Reason.DISK_FULL)


def test_a_smaller_micro_batch_is_a_gain() -> None:
    """Out of memory at one step, again and again, each time with less in a batch: started again."""
    history = [Ended(code=1, step=7, checkpoint_step=5, changed=True)] * 6
    assert isinstance(decide(history, POLICY, asked=None, random=0.5), Restart)


def test_a_failure_carries_the_workers_words() -> None:
    """What the worker said of its input is the run's message."""
    told = Ended(code=WorkerExit.BAD_INPUT, step=0, checkpoint_step=None, said="no column 'text'")
    verdict = decide([told], POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.message == "no column 'text'"


def test_cancelled_is_a_state_of_its_own() -> None:
    """Asked to end without a save: cancelled."""
    verdict = decide([ended(KILLED)], POLICY, asked=Reason.USER_CANCELLED, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.state is State.CANCELLED


def test_a_run_that_finishes_while_it_is_asked_to_stop_has_succeeded() -> None:
    """Its last step was its last step."""
    verdict = decide([ended(WorkerExit.DONE)], POLICY, asked=Reason.COST_LIMIT, random=0.5)
    assert verdict == Finish(state=State.SUCCEEDED)


def test_no_progress_ends_it() -> None:
    """Ends at different steps, but never a newer checkpoint: refused after `max_restarts` restarts, and said so."""
    history = [ended(KILLED, step=step) for step in (7, 8, 6)]
    assert isinstance(decide(history, POLICY, asked=None, random=0.5), Restart)
    history += [ended(KILLED, step=9), ended(KILLED, step=8)]
    verdict = decide(history, POLICY, asked=None, random=0.5)
    assert isinstance(verdict, Finish)
    assert verdict.reason is Reason.RESTARTS_SPENT
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
