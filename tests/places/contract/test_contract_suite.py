"""What every place keeps. A gap is declared by its executor with a reason; one that is not declared fails here."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tonnage.errors import TonnageError
from tonnage.places.contract import GapError
from tonnage.places.states import PlaceStatus
from tonnage.runs import RunFolder
from tonnage.runs.liveness import Heartbeat, read_heartbeat, write_heartbeat
from tonnage.runs.spec import GuardSpec, dump_spec
from tonnage.runs.states import RunReason
from tonnage.testing.places import PlaceTrial

LASTING = {"steps": 4000, "step_s": 0.02, "checkpoint_every": 5}


def losses(folder: RunFolder) -> dict[int, float]:
    """The newest loss of each step."""
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def working(trial: PlaceTrial, folder: RunFolder) -> None:
    """Wait until it has a checkpoint."""
    trial.wait(lambda: trial.status(folder).status.ended or (folder.state().checkpoint_step or 0) > 0)


def test_what_is_sent_is_known_before(trial: PlaceTrial) -> None:
    """The same bytes twice; nothing is written or asked; token and tag are in it."""
    folder = trial.write("rendered")
    before = sorted(folder.path.rglob("*"))
    sent = trial.submission(folder)
    assert sent == trial.submission(folder)
    assert sorted(folder.path.rglob("*")) == before
    assert sent.commands
    assert sent.token in sent.tag


def test_nothing_stands_against_a_run_that_fits(trial: PlaceTrial) -> None:
    """`check` refuses nothing, and starts nothing."""
    found = trial.executor.check(RunFolder(trial.home / "runs" / "check"))
    assert [one for one in found if one.kind == "refused"] == []


@pytest.mark.slow
def test_a_run_from_its_beginning_to_its_end(trial: PlaceTrial) -> None:
    """Sent twice it is one job; its log, figures and result come here; nothing of it is left there."""
    folder = trial.write("whole")
    first = trial.start(folder, steps=20, step_s=0.005)
    assert trial.executor.submit(trial.submission(folder, steps=20, step_s=0.005), folder) == first
    seen = {trial.status(folder).status}
    while not (now := trial.status(folder)).status.ended:
        seen.add(now.status)
    assert now.status is PlaceStatus.SUCCEEDED
    assert seen <= {
        PlaceStatus.QUEUED, PlaceStatus.PROVISIONING, PlaceStatus.STARTING, PlaceStatus.RUNNING, PlaceStatus.SUCCEEDED
    }  # fmt: skip
    trial.executor.collect(folder)
    assert "step 20" in folder.log_file.read_text()
    assert set(losses(folder)) == set(range(1, 21))
    assert json.loads(folder.result_file.read_text())["steps"] == 20
    assert folder.state().attempt == 1
    trial.executor.teardown(folder)
    assert trial.executor.orphans(folder.path.parent, end=False) == ()
    assert trial.alive is not None
    trial.wait(lambda: trial.alive is not None and trial.alive(folder) == 0)


@pytest.mark.slow
def test_stopped_with_a_save_and_gone_on(trial: PlaceTrial) -> None:
    """A run that is stopped has saved; the next submission goes on from there; the older one is no longer its job."""
    folder = trial.write("halted")
    trial.start(folder, **LASTING)
    working(trial, folder)
    trial.executor.stop(folder, by="test", reason="asked for")
    trial.reach(folder, PlaceStatus.STOPPED)
    at = folder.state().checkpoint_step
    assert at is not None
    assert at == folder.state().step
    trial.start(folder, 2, steps=at + 5, step_s=0.001)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert (folder.state().attempt, folder.state().lost_steps) == (2, 0)
    assert set(losses(folder)) == set(range(1, at + 6))


@pytest.mark.slow
def test_a_command_beside_the_run_and_an_end_at_once(trial: PlaceTrial) -> None:
    """`exec` runs where the run runs and gives its exit code; `cancel` ends without waiting for a save."""
    folder = trial.write("ended")
    trial.start(folder, **LASTING)
    working(trial, folder)
    if reason := trial.lacks("exec"):
        with pytest.raises(GapError, match=reason):
            trial.executor.exec(folder, ["true"])
    else:
        there = trial.executor.folder_there(folder)
        code = trial.executor.exec(folder, ["test", "-f", str(there.journal_file)])
        assert (code, trial.executor.exec(folder, ["sh", "-c", "exit 7"])) == (0, 7)
    trial.executor.cancel(folder, by="test", reason="asked for")
    trial.reach(folder, PlaceStatus.CANCELLED)


@pytest.mark.slow
def test_what_nobody_waits_for_is_found_and_ended(trial: PlaceTrial) -> None:
    """The job of a run that was removed is an orphan of its own home; `end` ends it, and it alone."""
    kept, folder = trial.write("kept"), trial.write("removed")
    trial.start(folder, hang_at=8, **LASTING)  # one that writes would fail by itself
    working(trial, folder)
    job = trial.start(kept, **LASTING)
    runs = folder.path.parent
    folder.path.rename(trial.home / "aside")
    assert trial.executor.orphans(trial.home / "other", end=True) == ()
    [found] = trial.executor.orphans(runs, end=True)
    assert (found.run, found.why, found.job_id != job) == ("removed", "its run was removed", True)
    trial.wait(lambda: trial.executor.orphans(runs, end=False) == ())
    assert not trial.status(kept).status.ended
    trial.executor.teardown(kept)


@pytest.mark.slow
def test_taken_away_and_started_again(trial: PlaceTrial) -> None:
    """A run whose machines are taken away saves, waits, and goes on: the same losses, no second job."""
    if reason := trial.lacks("preemption"):
        assert trial.preempt is None, f"the place has what it says it lacks: {reason}"
        return
    assert trial.preempt is not None, "declare the gap `preemption`, or say how the machines are taken away"
    folder = trial.write("taken")
    job = trial.start(folder, steps=150, step_s=0.03, checkpoint_every=50)
    trial.wait(lambda: trial.status(folder).status is PlaceStatus.RUNNING and folder.state().step > 5)
    trial.preempt(folder)
    trial.reach(folder, PlaceStatus.PREEMPTED)
    trial.reach(folder, PlaceStatus.SUCCEEDED)
    trial.executor.collect(folder)
    assert (folder.state().attempt, folder.state().lost_steps) == (2, 0)
    assert losses(folder) == {step: 1 / step for step in range(1, 151)}
    assert trial.executor.submit(trial.submission(folder, steps=150), folder) == job


@pytest.mark.slow
def test_money_counts_over_places_and_submissions(trial: PlaceTrial) -> None:
    """What was spent elsewhere before, and in each submission here, never sums to more than the limit and a quantum."""
    folder, now = trial.write("bounded"), datetime.now(UTC)
    hour = 3600.0  # USD: a dollar a second, in quanta of a second
    guard = GuardSpec(max_cost_usd=14.0, usd_per_hour=hour, billing_quantum_s=1.0)
    spec = replace(folder.spec(), guard=guard)
    folder.spec_file.write_text(dump_spec(spec))
    write_heartbeat(folder, Heartbeat(at=now - timedelta(hours=1), pid=1, host="away", held_s=2.0, spent_usd=9.0))
    trial.start(folder, **LASTING)
    trial.reach(folder, PlaceStatus.STOPPED)
    assert folder.state().reason is RunReason.COST_LIMIT
    trial.wait(lambda: spent(trial, folder) > 9.0)
    assert spent(trial, folder) <= 14.0 + 1.0
    first = spent(trial, folder)
    folder.spec_file.write_text(dump_spec(replace(spec, guard=replace(guard, max_cost_usd=first + 6.0))))
    trial.start(folder, 2, **LASTING)
    trial.wait(lambda: trial.status(folder).status is PlaceStatus.STOPPED and spent(trial, folder) > first)
    assert spent(trial, folder) <= first + 6.0 + 1.0
    assert folder.state().attempt == 2


def spent(trial: PlaceTrial, folder: RunFolder) -> float:
    """USD in all, as the run's last heartbeat says."""
    trial.executor.logs(folder)
    beat = read_heartbeat(folder)
    assert beat is not None
    assert beat.spent_usd is not None
    return beat.spent_usd


@pytest.mark.slow
def test_a_place_that_does_not_answer(trial: PlaceTrial) -> None:
    """It is an error that says so: never an empty answer, which would read as «nothing runs»."""
    if trial.out_of_reach is None:
        assert trial.executor.kind == "local", "say how the place is lost"
        return
    folder = trial.write("unanswered")
    trial.start(folder, **LASTING)
    lost = trial.out_of_reach()
    for ask in (lambda: lost.status(folder), lambda: lost.orphans(folder.path.parent, end=True)):
        with pytest.raises(TonnageError) as raised:
            ask()
        assert raised.value.hint


def test_every_gap_has_its_reason(trial: PlaceTrial) -> None:
    """In whole words, for the docs; each verb once."""
    assert all(len(one.reason.split()) > 4 for one in trial.executor.gaps)
    assert len({one.verb for one in trial.executor.gaps}) == len(trial.executor.gaps)
