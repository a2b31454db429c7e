"""The trials of a sweep, the best one, and how to go on with it (`tonnage/sweep@1`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tonnage.reports.blocks import Block, Column, Page, Paragraph, Table
from tonnage.reports.rendering import Report
from tonnage.sweeps.sweep import Sweep
from tonnage.trials.study import Tried, best_of
from tonnage.values import dataclass

SWEEP_SCHEMA: Final = "tonnage/sweep@1"


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

    def values(self) -> list[dict[str, Any]]:
        """One mapping a trial."""
        return [
            {
                "trial": one.number,
                "run": self.sweep.run_name(one.number),
                "state": one.state,
                "objective": one.value,
                "step": step,
                "seconds": one.attributes.get("seconds"),
                "usd": usd,
                "values": dict(one.values),
                "message": one.attributes.get("message", ""),
            }
            for one, step, usd in zip(self.tried, self.steps, self.usd, strict=True)
        ]


def sweep_report(result: SweepResult) -> Report:
    """The trials, the best first on a page, by number elsewhere."""
    columns = ("trial", "run", "state", "objective", "step", "seconds", "usd", "values", "message")
    return Report(
        page=lambda: _page(result),
        document=lambda: _document(result),
        columns=columns,
        rows=lambda: [
            [_shown(cell) if isinstance(cell, dict) else cell for cell in one.values()] for one in result.values()
        ],
    )


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
        "trials": result.values(),
    }


def _page(result: SweepResult) -> Page:
    sweep = result.sweep
    sign = 1.0 if sweep.direction == "minimize" else -1.0
    done = [one for one in result.values() if one["objective"] is not None]
    rest = [one for one in result.values() if one["objective"] is None]
    columns = (
        Column(title="trial", align="right"),
        Column(title=sweep.figure, align="right"),
        Column(title="values", wraps=True),
        Column(title="steps", align="right", folds=2),
        Column(title="seconds", align="right", folds=3),
        Column(title="state"),
        Column(title="run"),
    )
    rows = tuple(
        (
            str(one["trial"]),
            "" if one["objective"] is None else f"{one['objective']:.6g}",
            _shown(one["values"]),
            f"{one['step']:,}",
            "" if one["seconds"] is None else f"{one['seconds']:,.1f}",
            one["state"],
            one["run"],
        )
        for one in [*sorted(done, key=lambda one: sign * one["objective"]), *rest]
    )
    title = f"Sweep {sweep.name}: {sweep.direction} {sweep.figure}"
    blocks: list[Block] = [Table(columns=columns, rows=rows, first_is_best=bool(done))] if rows else []
    blocks += [
        Paragraph(text=f"trial {one['trial']}: {one['message']}", tone="warning") for one in rest if one["message"]
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


def _shown(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )
