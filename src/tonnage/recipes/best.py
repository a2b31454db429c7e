"""The best evaluation of a run so far, by its journal: which checkpoint to keep for it, and when to stop early."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.errors import InputError
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import TrainingSpec
from tonnage.values import dataclass
from tonnage.workload.run_terms import less_is_better


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """Where the evaluations of a run stand."""

    step: int | None = None  # of the best
    without_gain: int = 0  # evaluations since

    def over(self, training: TrainingSpec) -> bool:
        """Whether so many went without gain that training ends."""
        return training.early_stopping is not None and self.without_gain >= training.early_stopping


def standing(folder: RunFolder, training: TrainingSpec, *, step: int) -> BestSoFar:
    """Of the evaluations up to a step. A step that was evaluated again after a restart counts once."""
    found: dict[int, Mapping[str, float]] = {}
    for event in folder.events(brief=True):
        at = int(event.fields.get("step", 0))
        if event.kind is EventKind.EVALUATED and at <= step and not event.fields.get("finished"):
            found[at] = event.fields["metrics"]
    best: tuple[float, int] | None = None
    without = 0
    for at, metrics in sorted(found.items()):
        value = _value(metrics, training.best_by)
        if best is None or value > best[0]:
            best, without = (value, at), 0
        else:
            without += 1
    return BestSoFar(step=None if best is None else best[1], without_gain=without)


def _value(metrics: Mapping[str, float], name: str | None) -> float:
    """The figure to judge by, the larger the better; the task's first where none is named."""
    name = name or next(iter(metrics))
    if name not in metrics:
        raise InputError(f"no figure of the evaluation is named '{name}'", hint=f"`best_by`: {', '.join(metrics)}")
    return -metrics[name] if less_is_better(name) else metrics[name]
