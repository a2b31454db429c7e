"""The trials of a sweep, the best one, and how to go on with it (`tonnage/sweep@1`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tonnage.reports.blocks import Block, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, named_values
from tonnage.reports.rendering import Report
from tonnage.sweeps.sweep import Sweep
from tonnage.trials.study import Tried, best_of
from tonnage.values import dataclass

SWEEP_SCHEMA: Final = "tonnage/sweep@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTrial:
    """A trial, its run, the steps it took and its dollars (None: no price was given)."""

    tried: Tried
    run: str
    step: int
    usd: float | None

    @property
    def message(self) -> str:
        """Why it failed or was pruned; empty where it did not say."""
        return str(self.tried.attributes.get("message", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What is known of a sweep."""

    sweep: Sweep
    folder: Path
    tried: tuple[Tried, ...]
    seconds: float
    steps: tuple[int, ...]  # of each trial
    usd: tuple[float | None, ...]

    @property
    def best(self) -> Tried | None:
        return best_of(list(self.tried), self.sweep.direction)

    @property
    def state(self) -> str:
        """`done` once every trial has ended, else `unfinished`."""
        ended = sum(one.state != "running" for one in self.tried)
        return "done" if ended >= self.sweep.trials else "unfinished"

    def commands(self) -> dict[str, str]:
        """How to go on with the best: look at it, and train with its values under a name of its own."""
        if self.best is None:
            return {}
        run = self.sweep.run_name(self.best.number)
        spec = self.folder.parent.parent / "runs" / run / "spec.json"
        return {"show": f"tonnage show {run}", "again": f"tonnage run {spec} --name {self.sweep.name}-best"}

    def trials(self) -> list[ReportedTrial]:
        """The trials by number."""
        return [
            ReportedTrial(tried=one, run=self.sweep.run_name(one.number), step=step, usd=usd)
            for one, step, usd in zip(self.tried, self.steps, self.usd, strict=True)
        ]


def sweep_report(result: SweepResult) -> Report:
    """The trials, the best first on a page, by number elsewhere."""
    return fields_report(
        lambda: _page(result), lambda: _document(result), _trial_fields(result.sweep.figure), result.trials()
    )


def _trial_fields(figure: str) -> Fields[ReportedTrial]:
    """A trial; `figure` is the objective."""
    return (
        Field("trial", lambda one: one.tried.number, title="trial", show=str, right=True),
        Field("run", lambda one: one.run),
        Field("state", lambda one: one.tried.state),
        Field("objective", lambda one: one.tried.value, json=_exact, title=figure, show=_objective, right=True),
        Field("step", lambda one: one.step),
        cell("values", lambda one: named_values(one.tried.values), wraps=True),
        cell("steps", lambda one: f"{one.step:,}", right=True, folds=2),
        Field("seconds", lambda one: one.tried.attributes.get("seconds"), json=_exact, title="seconds", show=_seconds,
              right=True, folds=3),
        cell("state", lambda one: one.tried.state),
        cell("run", lambda one: one.run),
        Field("usd", lambda one: one.usd, json=_exact),
        Field("values", lambda one: dict(one.tried.values)),
        Field("message", lambda one: one.message),
    )  # fmt: skip


def _exact(value: Any) -> Any:
    return value


def _objective(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _document(result: SweepResult) -> dict[str, Any]:
    sweep, best = result.sweep, result.best
    known = [usd for usd in result.usd if usd is not None]
    return {
        "schema": SWEEP_SCHEMA,
        "name": sweep.name,
        "state": result.state,
        "folder": str(result.folder),
        "file": str(sweep.file),
        "objective": {"figure": sweep.figure, "direction": sweep.direction},
        "sampler": sweep.terms.sampler,
        "pruning": sweep.terms.pruning,
        "seed": sweep.terms.seed,
        "trials_asked": sweep.trials,
        "parallel": sweep.terms.parallel,
        "wall_s": round(result.seconds, 3),
        "usd": round(sum(known), 4) if known else None,
        "best": None if best is None else {"trial": best.number, "run": sweep.run_name(best.number)},
        "commands": result.commands(),
        "trials": [field_values(_trial_fields(sweep.figure), one) for one in result.trials()],
    }


def _page(result: SweepResult) -> Page:
    sweep = result.sweep
    sign = 1.0 if sweep.direction == "minimize" else -1.0
    trials = result.trials()
    done = [one for one in trials if one.tried.value is not None]
    rest = [one for one in trials if one.tried.value is None]
    best_first = [*sorted(done, key=lambda one: sign * (one.tried.value or 0.0)), *rest]
    title = f"Sweep {sweep.name}: {sweep.direction} {sweep.figure}"
    table = field_table(_trial_fields(sweep.figure), best_first, first_is_best=bool(done))
    blocks: list[Block] = [table] if trials else []
    blocks += [
        Paragraph(text=f"trial {one.tried.number}: {one.message}", tone="warning") for one in rest if one.message
    ]
    if commands := result.commands():
        blocks.append(
            Paragraph(text=f"`{commands['show']}` shows the best; with its values again: `{commands['again']}`")
        )
    if result.state != "done":
        left = sweep.trials - sum(one.state != "running" for one in result.tried)
        text = f"{left} of {sweep.trials} trials are left: `tonnage sweep {sweep.file} --name {sweep.name} --resume`"
        blocks.append(Paragraph(text=text))
    return Page(title=title, blocks=tuple(blocks))
