"""The best evaluation: its checkpoint stays and is the finished model; training ends where nothing is gained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tonnage.recipes.loop import BestSoFar, standing
from tonnage.recipes.task import Evaluation
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import TrainingSpec
from tonnage.runs.states import WorkerExit

MakeRun = Callable[..., Any]


def scored(tiny: Any, values: list[float]) -> Any:
    """The tiny task, whose evaluations say these figures, one after the other, then 0."""
    said = iter(values)

    def prepare(spec: Any) -> Any:
        def evaluate(*_: Any) -> Evaluation:
            return Evaluation(metrics={"accuracy": next(said, 0.0)}, samples=1)

        return replace(tiny.prepare(spec), evaluate=evaluate)

    return prepare


def test_the_finished_model_is_the_best_one(make_run: MakeRun, tiny: Any) -> None:
    """Evaluated at steps 2, 4, ..., the best at 4: its checkpoint outlives three newer ones and is what is saved."""
    run = make_run(max_steps=24, evaluate_every_steps=2, keep_best=True)
    assert run.work(scored(tiny, [0.1, 0.9] + [0.2] * 20)) == WorkerExit.DONE
    kept = {path.name for path in run.folder.checkpoints.iterdir()}
    assert "step-00000004" in kept
    assert len(kept) == 4
    plain = make_run("plain", max_steps=4)
    assert plain.work() == WorkerExit.DONE
    last = make_run("last", max_steps=24, evaluate_every_steps=2)
    assert last.work(scored(tiny, [])) == WorkerExit.DONE
    best, at_four, at_end = (torch.load(one.folder.model / "model.pt") for one in (run, plain, last))
    name = "head.weight"
    assert not torch.equal(best[name], at_end[name])
    # the learning rate of `plain` falls faster: alike, not the same
    assert (best[name] - at_four[name]).norm() < (best[name] - at_end[name]).norm()
    assert run.events(EventKind.BEST)[-1].fields["step"] == 4
    told = run.events(EventKind.EVALUATED)
    assert [(one.fields["step"], one.fields.get("finished")) for one in told[-2:]] == [(22, None), (4, True)]
    assert (run.result()["steps"], run.result()["model_step"]) == (24, 4)
    assert run.folder.state().step == 24


def test_training_ends_where_nothing_is_gained(make_run: MakeRun, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three evaluations without gain; a kill in between changes nothing, since the journal counts them."""
    values = [0.1, 0.5, 0.4, 0.5, 0.3, 0.9]
    run = make_run("run", max_steps=60, evaluate_every_steps=3, early_stopping=3)
    assert run.work(scored(tiny, values)) == WorkerExit.DONE
    assert run.result()["steps"] == 15
    (said,) = run.events(EventKind.EARLY_STOP)
    assert said.fields["message"] == (
        "stopped early after step 15 of 60: 3 evaluations in a row without gain over that of step 6"
    )
    killed = make_run("killed", max_steps=60, evaluate_every_steps=3, early_stopping=3)
    monkeypatch.setenv("TINY_SIGNAL_AT", "10")
    assert killed.work(scored(tiny, values)) == WorkerExit.PREEMPTED
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert killed.work(scored(tiny, values[3:])) == WorkerExit.DONE
    assert killed.result()["steps"] == 15


def test_less_is_better_for_losses(make_run: MakeRun) -> None:
    """By the figure that is named, in the direction its name says; a step evaluated twice counts once."""
    run = make_run()
    for step, loss in ((1, 3.0), (2, 1.0), (2, 1.0), (3, 2.0), (4, 0.1)):
        run.folder.record(EventKind.EVALUATED, who="rank0", step=step, metrics={"accuracy": loss, "perplexity": loss})
    training = TrainingSpec(best_by="perplexity", early_stopping=1)
    assert standing(run.folder, training, step=3) == BestSoFar(step=2, without_gain=1)
    assert standing(run.folder, training, step=3).over(training)
    assert standing(run.folder, TrainingSpec(), step=3) == BestSoFar(step=1, without_gain=2)
