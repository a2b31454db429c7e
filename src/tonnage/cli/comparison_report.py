"""Compare, then print the answer or write it to files, each whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli.session import Session, terminal_width
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError, TonnageError
from tonnage.files import save_for_user

if TYPE_CHECKING:
    from tonnage.comparison.comparing import Comparison

REPORTS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv", ".pdf": "pdf"}
MIGRATIONS = (".csv", ".ics", ".md")


def report_comparison(
    session: Session,
    file: str,
    reports: Sequence[str],
    migrations: Sequence[str],
    profiles: Sequence[str],
    weights: Mapping[str, float],
    *,
    memory_margin: float | None,
) -> None:
    """The whole command; InputError before any work where a file's form is not known or its libraries are missing."""
    for path in reports:
        _demand_report(path)
    for path in migrations:
        _suffix(path, MIGRATIONS, "--migration")
    for path in (*reports, *migrations):
        if not Path(path).parent.is_dir():
            raise InputError(f"{path}: there is no folder {Path(path).parent}", hint="make it first, or name another")
    with session.progress("comparing"):
        from tonnage import api

        folders = [Path(folder) for folder in profiles]
        found = api.compare(
            file, profile_folders=folders, weights=weights, memory_margin=memory_margin, settings=session.settings
        )
    from tonnage.reports.comparison.report import render_comparison
    from tonnage.reports.rendering import Look

    texts = [(path, _migration_text(found, path).encode()) for path in migrations]
    for path, content in [*((path, _report_bytes(found, path)) for path in reports), *texts]:
        save_for_user(Path(path), content, fault=TonnageError, hint="check the folder")
        session.say(f"wrote {path}")
    if not (reports or migrations) or session.form_given:
        write_stdout(render_comparison(found, session.settings.output, Look(width=terminal_width())))


def read_weights(texts: Sequence[str]) -> dict[str, float]:
    """Criterion and weight of each CRITERION=N. Raises InputError.

    >>> read_weights(["cost=5", "scaling=0"])
    {'cost': 5.0, 'scaling': 0.0}
    """
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--weight: found '{text}', expected CRITERION=N", hint="--weight cost=5") from None
    return found


def _report_form(path: str) -> Any:
    return REPORTS[_suffix(path, tuple(REPORTS), "--report")]


def _demand_report(path: str) -> None:
    """The form is known and what draws it is installed."""
    form = _report_form(path)
    if form in ("html", "pdf"):
        from tonnage.reports.comparison.plots import CHART_LIBRARIES, PDF_LIBRARIES, demand_libraries

        demand_libraries(PDF_LIBRARIES if form == "pdf" else CHART_LIBRARIES, f"a report as {form.upper()}")


def _report_bytes(found: Comparison, path: str) -> bytes:
    form = _report_form(path)
    if _is_board(path) and form in ("pdf", "html", "md"):
        return _board_bytes(found, form)
    if form == "pdf":
        from tonnage.reports.comparison.pdf import comparison_pdf

        return comparison_pdf(found)
    from tonnage.reports.comparison.report import render_comparison

    return render_comparison(found, form).encode()


def _is_board(path: str) -> bool:
    """Whether the two-page version is asked for: `board.pdf`, `2026-board.html`."""
    return re.split(r"[-_. ]", Path(path).stem.casefold())[-1] == "board"


def _board_bytes(found: Comparison, form: str) -> bytes:
    from tonnage.reports.comparison.board import board_sections

    sections = board_sections(found)
    if form == "pdf":
        from tonnage.reports.comparison.pdf import comparison_pdf

        return comparison_pdf(found, sections)
    if form == "html":
        from tonnage.reports.comparison.html import sections_html

        return sections_html(found, sections, contents=False).encode()
    from tonnage.reports.comparison.markdown import sections_markdown

    return sections_markdown(found, sections).encode()


def _suffix(path: str, known: Sequence[str], option: str) -> str:
    suffix = Path(path).suffix.casefold()
    if suffix not in known:
        raise InputError(
            f"{option}: cannot tell the form of '{path}'", hint=f"end its name with one of {', '.join(known)}"
        )
    return suffix


def _migration_text(found: Comparison, path: str) -> str:
    from tonnage.reports.comparison.moving import migration_calendar, migration_checklist, migration_csv

    if found.migration is None:
        raise InputError(
            "the compare file has no `migration`", hint="migration: {from: NAME, to: NAME, start: 2026-12-01}"
        )
    suffix = Path(path).suffix.casefold()
    if suffix == ".ics":
        return migration_calendar(found.migration, found.as_of)
    return migration_csv(found.migration) if suffix == ".csv" else migration_checklist(found.migration)
