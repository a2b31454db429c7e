"""What a run would start: `tonnage run --dry-run`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tonnage.reports.blocks import Block, Code, Heading, Page, Pairs, Paragraph
from tonnage.reports.rendering import Report
from tonnage.reports.run_figures import render_value
from tonnage.reports.wording import plural
from tonnage.runs.job import Job, alone_script
from tonnage.runs.preflight import PreflightFinding
from tonnage.runs.secrets import masked
from tonnage.runs.spec import RunSpec, dump_spec


def job_report(
    job: Job, spec: RunSpec, folder: str, *, prediction: Mapping[str, Any], doubts: Sequence[PreflightFinding]
) -> Report:
    """What is predicted and doubtful, the command with its environment and files, and a script that does the work."""
    script = masked(alone_script(job, folder=folder, spec=dump_spec(spec)))
    return Report(
        page=lambda: Page(title="Would start", blocks=tuple(_blocks(job, folder, prediction, doubts, script))),
        document=lambda: {
            "schema": job.schema,
            "runner": job.runner,
            "folder": folder,
            "command": list(job.argv),
            "env": dict(job.env),
            "secrets": list(job.secrets),
            "files": {file.path: file.text for file in job.files},
            "processes": job.processes,
            "signal_to": job.signal_to,
            "prediction": dict(prediction),
            "doubts": [{"message": one.message, "hint": one.hint} for one in doubts],
            "script": script,
        },
        columns=("name", "value"),
        rows=lambda: [["command", job.command_line], *([name, value] for name, value in job.env)],
    )


def _blocks(
    job: Job, folder: str, prediction: Mapping[str, Any], doubts: Sequence[PreflightFinding], script: str
) -> Iterator[Block]:
    yield Pairs(rows=(("runner", f"{job.runner}, {plural(job.processes, 'process')}"), ("folder", folder)))
    yield Heading(text="Predicted")
    if not prediction.get("figures"):
        yield Paragraph(text=f"Nothing: {prediction.get('why_none')}.", tone="faint")
    else:
        yield Pairs(rows=(("on", str(prediction["device"])), *map(_figure, prediction["figures"].items())))
    yield from _doubts(doubts)
    yield Heading(text="The work as a script (-o json has it under `script`)")
    yield Code(lines=tuple(script.splitlines()))


def _doubts(found: Sequence[PreflightFinding]) -> Iterator[Block]:
    for one in found:
        text = f"Doubtful: {one.message}" + (f" ({one.hint})" if one.hint else "")
        yield Paragraph(text=text, tone="warning")


def sent_report(
    commands: Sequence[Sequence[str]], script: str, job: str, folder: str, *, head: Mapping[str, Any],
    doubts: Sequence[PreflightFinding],
) -> Report:  # fmt: skip
    """What a run would send to its place: the commands, the script they send, the job it starts, and its cost.

    `head`: place, kind, tag, cost, prediction, and under plan the option that is carried out.
    """
    lines = [shlex.join(one) for one in commands]
    rows = [
        ("place", f"{head['place']} ({head['kind']})"),
        ("folder", folder),
        *_plan(head.get("plan")),
        *_cost(head["cost"] or {}),
    ]
    predicted = [Pairs(rows=tuple(map(_figure, head["prediction"]["figures"].items())))]
    none = [Paragraph(text=f"Nothing: {head['prediction'].get('why_none')}.", tone="faint")]
    return Report(
        page=lambda: Page(
            title="Would send",
            blocks=(
                Pairs(rows=tuple(rows)),
                Heading(text="Predicted"),
                *(predicted if head["prediction"].get("figures") else none),
                *_doubts(doubts),
                Heading(text="Commands"),
                Code(lines=tuple(lines)),
                Heading(text="What they send"),
                Code(lines=tuple(masked(script).splitlines())),
            ),
        ),
        document=lambda: {
            "schema": "tonnage/submission@1", "folder": folder, **head, "commands": [list(one) for one in commands],
            "script": masked(script), "job": json.loads(masked(job)),
            "doubts": [{"message": one.message, "hint": one.hint} for one in doubts],
        },
        columns=("name", "value"),
        rows=lambda: [["command", line] for line in lines],
    )  # fmt: skip


def _plan(option: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if option is not None:
        yield "plan", option["line"]


def _cost(cost: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A price that is not written down is shown as unknown."""
    hour, most, predicted = cost.get("usd_per_hour"), cost.get("most_usd_a_job"), cost.get("predicted_usd")
    if hour is None:
        yield "cost", "not known: the place states no usd_per_hour, and the catalog has no price of its machine"
        return
    for line in cost["lines"]:
        read = f", read on {line['read_on']}" if line["read_on"] else ", undated" if line["undated"] else ""
        yield "an hour", f"${line['usd_per_hour']:,.2f} {line['what']} ({line['source']}{read})"
    if predicted is not None:
        yield _figure(("cost_usd", predicted))
    if most is None:
        yield "price", f"${hour:,.2f} an hour, without a limit of time"
    else:
        yield "at most", f"${most:,.2f} a job: {cost['time_limit_h']:g} h at ${hour:,.2f} an hour"


def _figure(one: tuple[str, Mapping[str, Any]]) -> tuple[str, str]:
    key, figure = one
    label, value = render_value(key, figure["value"])
    low, high = (render_value(key, figure[end])[1] for end in ("low", "high"))
    return label, f"{value} ({low} to {high})"
