"""A pipeline's steps and what each ended with (`tonnage/pipeline@1`), and its graph as Mermaid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tonnage.pipelines.fingerprints import DoneStep
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.reports.blocks import Block, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, named_values
from tonnage.reports.rendering import Report
from tonnage.values import dataclass

PIPELINE_SCHEMA: Final = "tonnage/pipeline@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step as reported."""

    step: PipelineStep
    state: str  # done, up to date, failed, skipped, stale, never
    result: DoneStep | None = None
    message: str = ""


def pipeline_report(pipeline: Pipeline, lines: tuple[StepLine, ...]) -> Report:
    """The steps in their order."""
    return fields_report(
        lambda: _page(pipeline, lines),
        lambda: {
            "schema": PIPELINE_SCHEMA,
            "name": pipeline.name,
            "steps": [field_values(_STEP, line) for line in lines],
        },
        _STEP, lines,
    )  # fmt: skip


def _page(pipeline: Pipeline, lines: tuple[StepLine, ...]) -> Page:
    blocks: list[Block] = [field_table(_STEP, lines)]
    failed = [line.step.name for line in lines if line.state == "failed"]
    if failed:
        blocks.append(Paragraph(text=f"Failed: {', '.join(failed)}. Run again to go on from there.", tone="warning"))
    return Page(title=f"Pipeline {pipeline.name}", blocks=tuple(blocks))


def _ended_with(result: DoneStep | None) -> str:
    if result is None:
        return ""
    return named_values(result.figures) or (f"run {result.run}" if result.run else ", ".join(result.outputs))


def _of_result(name: str) -> Callable[[StepLine], Any]:
    return lambda line: None if line.result is None else getattr(line.result, name)


_STEP: Final[Fields[StepLine]] = (
    Field("step", lambda line: line.step.name, title="step"),
    Field("kind", lambda line: line.step.kind, title="does", folds=2),
    Field("needs", lambda line: line.step.needs, title="after", show=", ".join, folds=3, wraps=True),
    Field("state", lambda line: line.state, title="state"),
    Field("seconds", _of_result("seconds"), json=lambda seconds: seconds, title="seconds", right=True, folds=1,
          show=lambda seconds: "" if seconds is None else f"{seconds:,.1f}"),
    Field("run", _of_result("run")),
    Field("figures", lambda line: dict(line.result.figures) if line.result else {}),
    Field("message", lambda line: line.message),
    cell("ended with", lambda line: line.message.split("\n")[0] or _ended_with(line.result), wraps=True),
)  # fmt: skip


def render_graph(pipeline: Pipeline) -> str:
    """The steps and their arrows as a Mermaid flowchart.

    Names hold letters that Mermaid understands; each step is a box with its name and what it does.
    """
    names = {step.name: f"s{place}" for place, step in enumerate(pipeline.steps)}
    lines = ["flowchart LR"]
    lines += [f'    {names[step.name]}["{step.name}<br/>{step.kind}"]' for step in pipeline.steps]
    lines += [f"    {names[need]} --> {names[step.name]}" for step in pipeline.steps for need in step.needs]
    return "\n".join(lines) + "\n"
