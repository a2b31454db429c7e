"""A sweep over runs that are only pretended: what is tried, told, given up, and done after a kill."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.killed import Killed

from tonnage.errors import InputError, WorkloadError
from tonnage.runs.states import RunReason, RunStatus
from tonnage.sweeps import Sweep, load_sweep
from tonnage.sweeps.engine import SeenTrial, SweepEnd, SweepSession
from tonnage.sweeps.folder import SweepFolder, find_sweep
from tonnage.trials.study import OptunaStudy

pytest.importorskip("optuna")

FILE = """\
kind: tabular
tabular: {{rows: 100, features: 2, method: mlp, epochs: 1}}
run:
  data: {{train: rows.csv}}
  evaluate_every: 1
  limits: {{usd_per_hour: 1}}
sweep:
  parameters:
    run.learning_rate: {{low: 1e-4, high: 1e-1, log: true}}
    tabular.hidden_layers: [[8], [16, 8]]
  objective: rmse
{terms}
"""


class Pretended:
    """Runs that end at once, or as told; they outlive the engine, as real ones do."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.resumed: list[int] = []
        self.values: dict[int, Mapping[str, Any]] = {}
        self.runs: dict[int, SeenTrial] = {}
        self.later: dict[int, SeenTrial] = {}  # how they stand from the second look on
        self.then: Callable[[int], SeenTrial] = lambda number: succeeded(float(number))
        self.on_start: Callable[[int], None] = _nothing

    def observe(self, number: int) -> SeenTrial | None:
        seen = self.runs.get(number)
        if number in self.later:
            self.runs[number] = self.later.pop(number)
        return seen

    def start(self, number: int, values: Mapping[str, Any]) -> None:
        self.started.append(number)
        self.values[number] = values
        self.runs[number] = self.then(number)
        self.on_start(number)

    def resume(self, number: int) -> None:
        self.resumed.append(number)
        self.runs[number] = succeeded(float(number))

    def stop(self, number: int) -> None:
        self.runs[number] = SeenTrial(state=RunStatus.STOPPED, over=True, reason=RunReason.USER_STOPPED)

    def cancel(self, number: int) -> None:
        self.runs[number] = SeenTrial(state=RunStatus.CANCELLED, over=True, reason=RunReason.USER_CANCELLED)


def succeeded(value: float, usd: float | None = None) -> SeenTrial:
    return SeenTrial(state=RunStatus.SUCCEEDED, over=True, metrics={"rmse": value}, seconds=1.0, usd=usd, step=3)


RUNNING = SeenTrial(state=RunStatus.RUNNING, over=False)


def sweep_of(tmp_path: Path, terms: str = "trials: 3") -> Sweep:
    (tmp_path / "rows.csv").write_text("a,label\n1,2\n")
    path = tmp_path / "one.tonnage.yaml"
    path.write_text(FILE.format(terms="\n".join(f"  {line}" for line in terms.splitlines())))
    return load_sweep(path)


def carry_out(sweep: Sweep, home: Path, runs: Pretended, said: list[str] | None = None) -> SweepEnd:
    """One session, as the command line has it."""
    folder = SweepFolder(home / "sweeps" / sweep.name)
    if not folder.path.exists():
        folder.begin(sweep)
    study = OptunaStudy(folder.study_file, sweep.study)
    say = (said if said is not None else []).append
    return SweepSession(sweep, folder, study, runs, say=say, look_every_s=0.0).run()


def study_of(sweep: Sweep, home: Path) -> OptunaStudy:
    return OptunaStudy(SweepFolder(home / "sweeps" / sweep.name).study_file, sweep.study)


def test_every_trial_is_told_once(tmp_path: Path) -> None:
    """As many as asked, each with values of its own, the value told; files are the user's alone."""
    sweep, runs = sweep_of(tmp_path), Pretended()
    said: list[str] = []
    assert carry_out(sweep, tmp_path, runs, said).why == "done"
    tried = study_of(sweep, tmp_path).tried()
    assert [(one.number, one.state, one.value) for one in tried] == [(n, "complete", float(n)) for n in (1, 2, 3)]
    assert len({one.values["run.learning_rate"] for one in tried}) == 3
    assert all(one.values["tabular.hidden_layers"] in ([8], [16, 8]) for one in tried)
    assert "best 1 (trial 1)" in said[-1]
    folder = tmp_path / "sweeps" / "one"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}


def test_the_spec_of_a_trial_has_its_values_and_its_sweep(tmp_path: Path) -> None:
    """Sampled values stand in the specification, everything else as in the file; cores are shared out."""
    sweep = sweep_of(tmp_path, "trials: 3\nparallel: 2")
    spec = sweep.spec(7, {"run.learning_rate": 0.5, "tabular.hidden_layers": [3]}, cores=8)
    assert (spec.name, spec.sweep) == ("one-007", "one")
    assert (spec.training.learning_rate, spec.tabular.hidden_layers) == (0.5, (3,))
    assert (spec.training.evaluate_every_steps, spec.launch.threads) == (1, 4)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_seed_gives_the_same_values_killed_or_not(tmp_path: Path, sampler: str) -> None:
    """A sweep killed after its first trial tries what one that was left alone tries."""
    sweep = sweep_of(tmp_path, f"trials: 3\nsampler: {sampler}")
    whole, broken = Pretended(), Pretended()
    carry_out(sweep, tmp_path / "whole", whole)
    broken.on_start = _kill_at(2)
    with pytest.raises(Killed):
        carry_out(sweep, tmp_path / "broken", broken)
    broken.on_start = _nothing
    carry_out(sweep, tmp_path / "broken", broken)
    assert broken.values == whole.values
    assert broken.started == [1, 2, 3]


def test_after_a_kill_each_trial_is_taken_up_as_it_stands(tmp_path: Path) -> None:
    """Ended while nobody looked: told. Lost: resumed. Never started: started, with the values chosen for it."""
    for found, started, resumed in (
        (succeeded(2.0), 0, 0),
        (SeenTrial(state=RunStatus.LOST, over=True), 0, 1),
        (None, 1, 0),
    ):
        sweep, runs, home = sweep_of(tmp_path), Pretended(), tmp_path / f"{started}{resumed}"
        runs.on_start = _kill_at(2)
        with pytest.raises(Killed):
            carry_out(sweep, home, runs)
        chosen = runs.values[2]
        runs.on_start = _nothing
        if found is None:
            del runs.runs[2]
        else:
            runs.runs[2] = found
        assert carry_out(sweep, home, runs).why == "done"
        assert runs.started.count(2) == 1 + started
        assert (runs.resumed, runs.values[2]) == ([2] * resumed, chosen)
        assert [one.state for one in study_of(sweep, home).tried()] == ["complete"] * 3


def test_values_half_chosen_are_completed(tmp_path: Path) -> None:
    """A kill between two parameters of a trial leaves one; the trial goes on with it and gets the other."""
    sweep, runs = sweep_of(tmp_path, "trials: 1"), Pretended()
    folder = SweepFolder(tmp_path / "sweeps" / "one")
    folder.begin(sweep)
    kept = OptunaStudy(folder.study_file, sweep.study).begin().values
    with closing(sqlite3.connect(folder.study_file)) as base, base:
        base.execute("delete from trial_params where param_name = 'tabular.hidden_layers'")
    assert carry_out(sweep, tmp_path, runs).why == "done"
    assert runs.started == [1]
    assert runs.values[1]["run.learning_rate"] == kept["run.learning_rate"]
    assert runs.values[1]["tabular.hidden_layers"] in ([8], [16, 8])


def test_a_grid_tries_each_combination_once(tmp_path: Path) -> None:
    """Lists and steps, every combination, also over a kill."""
    path = sweep_of(tmp_path).file
    text = path.read_text().replace("{low: 1e-4, high: 1e-1, log: true}", "{low: 0.1, high: 0.3, step: 0.1}")
    path.write_text(text.replace("trials: 3", "sampler: grid"))
    sweep, runs = load_sweep(path), Pretended()
    runs.on_start = _kill_at(3)
    with pytest.raises(Killed):
        carry_out(sweep, tmp_path, runs)
    runs.on_start = _nothing
    assert carry_out(sweep, tmp_path, runs).why == "done"
    assert runs.started == [1, 2, 3, 4, 5, 6]
    assert len({str(values) for values in runs.values.values()}) == 6


def test_a_poor_trial_is_given_up(tmp_path: Path) -> None:
    """Worse than the median of five at the same step: cancelled and pruned; one that is better goes on."""
    sweep, runs = sweep_of(tmp_path, "trials: 7\npruning: median"), Pretended()

    def then(number: int) -> SeenTrial:
        course = {10: {"rmse": 9.0 if number == 6 else 1.0 + number / 100}}
        if number == 6:
            return SeenTrial(state=RunStatus.RUNNING, over=False, evaluations=course)
        runs.later[number] = succeeded(1.0)
        return SeenTrial(state=RunStatus.RUNNING, over=False, evaluations=course)

    runs.then = then
    assert carry_out(sweep, tmp_path, runs).why == "done"
    states = [one.state for one in study_of(sweep, tmp_path).tried()]
    assert states[5] == "pruned"
    assert states[:5] == ["complete"] * 5


def test_a_kill_between_giving_up_and_telling(tmp_path: Path) -> None:
    """A trial marked as pruned whose run was cancelled is told as pruned, not resumed."""
    sweep, runs = sweep_of(tmp_path, "trials: 1\npruning: median"), Pretended()
    folder = SweepFolder(tmp_path / "sweeps" / "one")
    folder.begin(sweep)
    study = OptunaStudy(folder.study_file, sweep.study)
    study.begin()
    study.is_poor(1, {10: 3.0})
    study.note(1, pruned_at=10)
    runs.cancel(1)
    carry_out(sweep, tmp_path, runs)
    assert [one.state for one in study_of(sweep, tmp_path).tried()] == ["pruned"]
    assert runs.resumed == []


def test_failures_do_not_end_the_sweep(tmp_path: Path) -> None:
    """A failed run, and one that is no number, are failed trials with their reason; the others go on."""
    sweep, runs = sweep_of(tmp_path), Pretended()
    ends = {
        1: SeenTrial(state=RunStatus.FAILED, over=True, reason=RunReason.DIVERGED, message="loss is nan"),
        2: succeeded(float("nan")),
        3: succeeded(3.0),
    }
    runs.then = ends.__getitem__
    assert carry_out(sweep, tmp_path, runs).why == "done"
    tried = study_of(sweep, tmp_path).tried()
    assert [one.state for one in tried] == ["failed", "failed", "complete"]
    assert tried[0].attributes["message"] == "Diverged: loss is nan"


def test_a_figure_that_is_never_printed_ends_the_sweep(tmp_path: Path) -> None:
    """Where the task could print it but this run does not, the first trial tells, with the figures there are."""
    sweep, runs = sweep_of(tmp_path), Pretended()
    runs.then = lambda _: SeenTrial(state=RunStatus.SUCCEEDED, over=True, metrics={"accuracy": 1.0})
    with pytest.raises(InputError, match="named 'rmse'") as raised:
        carry_out(sweep, tmp_path, runs)
    assert "accuracy" in (raised.value.hint or "")
    assert runs.started == [1]


def test_limits_hold_over_all_trials(tmp_path: Path) -> None:
    """Dollars of all trials count together, also those of an earlier session; more money goes on."""
    sweep, runs = sweep_of(tmp_path, "trials: 4\nlimits: {cost_usd: 2}"), Pretended()
    runs.then = lambda number: succeeded(float(number), usd=1.0)
    assert carry_out(sweep, tmp_path, runs).why == "cost limit"
    assert carry_out(sweep, tmp_path, runs).why == "cost limit"
    assert runs.started == [1, 2]
    assert carry_out(sweep_of(tmp_path, "trials: 4\nlimits: {cost_usd: 9}"), tmp_path, runs).why == "done"
    assert runs.started == [1, 2, 3, 4]


def test_a_wall_limit_counts_earlier_sessions(tmp_path: Path) -> None:
    """A sweep that was under way for its whole time before starts nothing, and what runs is stopped."""
    sweep, runs = sweep_of(tmp_path, "limits: {wall: 1h}"), Pretended()
    runs.on_start = _kill_at(1)
    runs.then = lambda _: RUNNING
    with pytest.raises(Killed):
        carry_out(sweep, tmp_path, runs)
    SweepFolder(tmp_path / "sweeps" / "one").save_seconds(3600.0)
    ended = carry_out(sweep, tmp_path, runs)
    assert (ended.why, ended.paused, runs.started) == ("time limit", 1, [1])


def test_an_interrupt_stops_and_a_resumption_goes_on(tmp_path: Path) -> None:
    """Ctrl-C: trials under way are asked to save; the next session resumes them and starts the rest."""
    sweep, runs = sweep_of(tmp_path, "trials: 3\nparallel: 2"), Pretended()
    runs.then = lambda _: RUNNING

    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    runs.on_start = interrupt
    ended = carry_out(sweep, tmp_path, runs)
    assert (ended.why, ended.paused) == ("interrupted", 2)
    runs.then, runs.on_start = (lambda number: succeeded(float(number))), _nothing
    assert carry_out(sweep, tmp_path, runs).why == "done"
    assert (sorted(runs.resumed), runs.started) == ([1, 2], [1, 2, 3])


def test_only_how_much_may_change(tmp_path: Path) -> None:
    """More trials are the same sweep; another range is told by its key; an unknown sweep by the nearest name."""
    carry_out(sweep_of(tmp_path), tmp_path, Pretended())
    folder = find_sweep(tmp_path, "one")
    folder.check_same(sweep_of(tmp_path, "trials: 9"))
    with pytest.raises(InputError, match=r"`sweep\.seed` has changed"):
        folder.check_same(sweep_of(tmp_path, "seed: 3"))
    with pytest.raises(InputError, match="there already"):
        folder.begin(sweep_of(tmp_path))
    with pytest.raises(InputError, match="named 'onne'") as raised:
        find_sweep(tmp_path, "onne")
    assert "'one'" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("old", "new", "said", "hint"),
    [
        ("run.learning_rate:", "run.learning_rat:", "no key of this file", "run.learning_rate"),
        ("run.learning_rate:", "learning_rate:", "no key of this file", "run.learning_rate"),
        ("run.learning_rate:", "run.limits.usd_per_hour:", "no key of this file", ""),
        ("low: 1e-4", "low: 1", "low 1 is above high 0.1", "{low: 0.1, high: 1}"),
        ("low: 1e-4", "low: 0", "`log` needs a low above 0", ""),
        ("log: true", "log: true, step: 1e-3", "`log` takes no step", ""),
        ("low: 1e-4, ", "", "is missing, expected a list of values or a range", ""),
        ("[[8], [16, 8]]", "[[8], [-1]]", r"\[-1\] cannot be used", ""),
        ("[[8], [16, 8]]", "[]", "nothing to choose from", ""),
        ("objective: rmse", "objective: rsme", "no figure of mlp is named 'rsme'", "'rmse'"),
        ("trials: 3", "sampler: grid", "needs single values", "step"),
        ("  evaluate_every: 1\n", "", "nothing is evaluated on the way", "evaluate_every"),
        ("  limits: {usd_per_hour: 1}\n", "", "what an hour costs is not known", "usd_per_hour"),
    ],
)
def test_bad_input_is_told_before_the_start(tmp_path: Path, old: str, new: str, said: str, hint: str) -> None:
    """With file, key and what to write instead."""
    path = sweep_of(tmp_path, "trials: 3\npruning: median\nlimits: {cost_usd: 3}").file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(WorkloadError, match=said) as raised:
        load_sweep(path)
    assert raised.value.key
    assert hint in (raised.value.hint or "")


def _nothing(_: int) -> None:
    """Nobody kills."""


def _kill_at(last: int) -> Callable[[int], None]:
    def kill(number: int) -> None:
        if number == last:
            raise Killed

    return kill
