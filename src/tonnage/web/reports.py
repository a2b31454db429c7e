"""Reports that only the page has: home, the list of workload files, the end of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tonnage.api.services import ServiceNow
from tonnage.reports.blocks import Block, Bullets, Code, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, Listing, field_table, field_values, listing_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_money
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.web.access import WebCaller

HOME_SCHEMA: Final = "tonnage/home@1"
WORKLOADS_SCHEMA: Final = "tonnage/workloads@1"
CALLER_SCHEMA: Final = "tonnage/caller@1"
LOGS_SCHEMA: Final = "tonnage/logs@1"
LARGEST_TAIL_BYTES: Final = 4 << 20


_SERVICE: Final[Fields[ServiceNow]] = (
    Field("name", lambda one: one.name, title="service"),
    Field("state", lambda one: one.state, title="state"),
    Field("url", lambda one: one.url, title="at"),
    Field("usd_per_hour", lambda one: one.usd_per_hour, title="USD/h", right=True,
          show=lambda usd: UNKNOWN if usd is None else f"{usd:,.2f}"),
)  # fmt: skip


def home_report(
    runs: Report, services: Sequence[ServiceNow], fault: str, alerts: Report, under_way: int, standing: int
) -> Report:
    """Runs and services under way, and alerts that fire, from their own reports. `fault`: why services are unknown."""
    hourly = [one.usd_per_hour for one in services if one.usd_per_hour is not None]
    cost = f" ({render_money(sum(hourly))} an hour now)" if hourly else ""
    needs = (f"{plural(under_way, 'run')} under way or lost, {plural(len(services), 'service')}{cost}, "
             f"{plural(standing, 'alert')}.")  # fmt: skip

    def page() -> Page:
        first, *remarks = runs.page().blocks  # a remark names a run that cannot be read
        listed = first if runs.rows() else Paragraph(text="No run is under way.", tone="faint")
        parts = (Paragraph(text=needs, tone="warning" if standing else "plain"), Heading(text="Runs"), listed, *remarks)
        below = (*_service_blocks(services, fault), Heading(text="Alerts"), *alerts.page().blocks)
        return Page(title="Home", blocks=(*parts, *below))

    def document() -> dict[str, Any]:
        return {
            "schema": HOME_SCHEMA, "runs": dict(runs.document()),
            "services": [field_values(_SERVICE, one) for one in services], "alerts": dict(alerts.document()),
        }  # fmt: skip

    return Report(page=page, document=document, columns=runs.columns, rows=runs.rows)


def with_services(runs: Report, services: Sequence[ServiceNow], fault: str) -> Report:
    """The list of runs, and the services that run below it on the page."""

    def page() -> Page:
        made = runs.page()
        return replace(made, blocks=(*made.blocks, *_service_blocks(services, fault)))

    return replace(runs, page=page)


def _service_blocks(services: Sequence[ServiceNow], fault: str) -> Iterator[Block]:
    if services:
        yield Heading(text="Services")
        yield field_table(_SERVICE, services)
    if fault:
        yield Paragraph(text=fault, tone="warning")


def no_watch_report(said: str) -> Report:
    """What is in the place of alerts where there are none to show, and why."""
    return Report(
        page=lambda: Page(title="Alerts", blocks=(Paragraph(text=said, tone="faint"),)),
        document=lambda: {"schema": "tonnage/watch-status@1", "written_at": None, "alerts": []},
        columns=("rule",),
        rows=list,
    )


def caller_report(who: WebCaller) -> Report:
    """Who asks: name, role, and the projects that it holds for."""
    projects = None if who.projects is None else sorted(who.projects)
    rows = (("name", who.name), ("role", who.role), ("projects", "all" if projects is None else ", ".join(projects)))
    return Report(
        page=lambda: Page(title="You", blocks=(Pairs(rows=rows),)),
        document=lambda: {"schema": CALLER_SCHEMA, "name": who.name, "role": who.role, "projects": projects},
        columns=("name", "role", "projects"),
        rows=lambda: [[who.name, who.role, " ".join(projects or ())]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedFile:
    name: str
    kind: str | None
    model: str | None
    file: str


_FILE: Final[Fields[_ListedFile]] = (
    Field("name", lambda one: one.name, title="workload"),
    Field("kind", lambda one: one.kind, title="kind"),
    Field("model", lambda one: one.model, title="model"),
    Field("file", lambda one: one.file, title="file", wraps=True),
)


def workloads_report(files: Mapping[str, Path]) -> Report:
    """The files by name; what cannot be read has no kind."""
    found = [_read(name, path) for name, path in files.items()]
    return listing_report(
        Listing(schema=WORKLOADS_SCHEMA, title="Workloads", name="workloads", head={}, fields=_FILE, items=found)
    )


def _read(name: str, path: Path) -> _ListedFile:
    try:
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        said = None
    kind, model = (said.get("kind"), said.get("model")) if isinstance(said, dict) else (None, None)
    return _ListedFile(
        name=name, kind=kind if isinstance(kind, str) else None, model=model if isinstance(model, str) else None,
        file=path.name,
    )  # fmt: skip


def logs_report(folder: RunFolder, most: int) -> Report:
    """The last lines that the workers of a run wrote."""
    lines = tuple(_tail(folder.log_file, most))
    name = folder.path.name

    def page() -> Page:
        empty = Bullets(items=("nothing was written yet",))
        return Page(title=f"Log of {name}", blocks=(Code(lines=lines) if lines else empty,))

    def document() -> dict[str, Any]:
        return {"schema": LOGS_SCHEMA, "run": name, "lines": list(lines)}

    return Report(page=page, document=document, columns=("line",), rows=lambda: [[line] for line in lines])


def _tail(log: Path, most: int) -> list[str]:
    """At most the last 4 MiB are read, however long the log is."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LARGEST_TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    return text.splitlines()[-most:]
