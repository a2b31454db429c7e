"""What a run would start: `tonnage run --dry-run`."""

from __future__ import annotations

from tonnage.reports.blocks import Page, Pairs, Paragraph
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural
from tonnage.runs.job import Job


def job_report(job: Job, folder: str) -> Report:
    """The command, its environment and its files, as they would be."""
    return Report(
        page=lambda: _page(job, folder),
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
        },
        columns=("name", "value"),
        rows=lambda: [["command", job.command_line], *([name, value] for name, value in job.env)],
    )


def _page(job: Job, folder: str) -> Page:
    facts = (("runner", f"{job.runner}, {plural(job.processes, 'process')}"), ("folder", folder))
    script = tuple(Paragraph(text=line) for line in job.script().splitlines())
    return Page(title="Would start", blocks=(Pairs(rows=facts), *script))
