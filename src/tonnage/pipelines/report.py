"""A pipeline's steps and what each ended with (`tonnage/pipeline@1`), and its graph as Mermaid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.pipelines.results import DoneStep
from tonnage.reports.blocks import Block, Column, Page, Paragraph, Table
from tonnage.reports.rendering import Report
from tonnage.values import dataclass

PIPELINE_SCHEMA: Final = "tonnage/pipeline@1"
COLUMNS: Final = ("step", "kind", "needs", "state", "seconds", "run", "figures", "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step as reported."""

    step: PipelineStep
    state: str  # done, up to date, failed, skipped, stale, never
    result: DoneStep | None = None
    message: str = ""

    def values(self) -> dict[str, Any]:
        result = self.result
        return {
            "step": self.step.name,
            "kind": self.step.kind,
            "needs": list(self.step.needs),
            "state": self.state,
            "seconds": result.seconds if result else None,
            "run": result.run if result else None,
            "figures": dict(result.figures) if result else {},
            "message": self.message,
        }


def pipeline_report(pipeline: Pipeline, lines: tuple[StepLine, ...]) -> Report:
    """The steps in their order."""
    return Report(
        page=lambda: _page(pipeline, lines),
        document=lambda: {
            "schema": PIPELINE_SCHEMA,
            "name": pipeline.name,
            "steps": [line.values() for line in lines],
        },
        columns=COLUMNS,
        rows=lambda: [[_cell(value) for value in line.values().values()] for line in lines],
    )


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(value)
    return _shown(value) if isinstance(value, Mapping) else value


def _page(pipeline: Pipeline, lines: tuple[StepLine, ...]) -> Page:
    columns = (
        Column(title="step"),
        Column(title="does", folds=2),
        Column(title="after", folds=3, wraps=True),
        Column(title="state"),
        Column(title="seconds", align="right", folds=1),
        Column(title="ended with", wraps=True),
    )
    rows = tuple(
        (
            line.step.name,
            line.step.kind,
            ", ".join(line.step.needs),
            line.state,
            "" if line.result is None else f"{line.result.seconds:,.1f}",
            line.message.split("\n")[0] or _ended_with(line.result),
        )
        for line in lines
    )
    blocks: list[Block] = [Table(columns=columns, rows=rows)]
    failed = [line.step.name for line in lines if line.state == "failed"]
    if failed:
        blocks.append(Paragraph(text=f"Failed: {', '.join(failed)}. Run again to go on from there.", tone="warning"))
    return Page(title=f"Pipeline {pipeline.name}", blocks=tuple(blocks))


def _ended_with(result: DoneStep | None) -> str:
    if result is None:
        return ""
    return _shown(result.figures) or (f"run {result.run}" if result.run else ", ".join(result.outputs))


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def render_graph(pipeline: Pipeline) -> str:
    """The steps and their arrows as a Mermaid flowchart.

    Names hold letters that Mermaid understands; each step is a box with its name and what it does.
    """
    names = {step.name: f"s{place}" for place, step in enumerate(pipeline.steps)}
    lines = ["flowchart LR"]
    lines += [f'    {names[step.name]}["{step.name}<br/>{step.kind}"]' for step in pipeline.steps]
    lines += [f"    {names[need]} --> {names[step.name]}" for step in pipeline.steps for need in step.needs]
    return "\n".join(lines) + "\n"
