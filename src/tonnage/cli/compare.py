"""`tonnage compare`: platforms compared for one's own work, or the claims of a document checked; shown, or in files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tonnage.cli import options
from tonnage.cli.declared import PlanSession
from tonnage.cli.session import Session, terminal_width
from tonnage.cli.streams import write_stdout
from tonnage.errors import ClaimsFound, InputError, TonnageError
from tonnage.files import save_for_user

if TYPE_CHECKING:
    from tonnage.comparison.comparing import Comparison
CompareFile = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A compare file, NAME.tonnage.yaml with kind: compare.", show_default=False),
]
ReportFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write the report: .html, .pdf, .md, .json or .csv; may be repeated. board.pdf: two pages.",
    ),
]
MigrationFiles = Annotated[
    list[str] | None,
    typer.Option("--migration", metavar="FILE", help="Write the migration plan: .csv, .ics or .md; may be repeated."),
]
ProfileFolders = Annotated[
    list[str] | None,
    typer.Option("--profiles", metavar="FOLDER", help="Platform profiles of your own, *.yaml; may be repeated."),
]
Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        metavar="FILE.md",
        help="Check the claims of a Markdown document: machines, GPUs, prices, sums, models.",
        show_default=False,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="With --check: exit code 1 on wrong or stale claims.")]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="CRITERION=N",
        help="A weight in the place of the file's; 0 leaves it out; may be repeated.",
        show_default=False,
    ),
]  # fmt: skip
EveryClaim = Annotated[bool, typer.Option("--all", help="With --check: also list what holds and what is passed over.")]
REPORTS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv", ".pdf": "pdf"}
MIGRATIONS = (".csv", ".ics", ".md")


def compare(
    file: CompareFile = None,
    report: ReportFiles = None,
    migration: MigrationFiles = None,
    profiles: ProfileFolders = None,
    weight: Weights = None,
    check: Check = None,
    strict: Strict = False,
    every_claim: EveryClaim = False,
    memory_margin: options.MemoryMargin = None,
    *,
    session: PlanSession,
) -> None:
    """Compare platforms for your own work: cost, speed, fit, scores, decision, recommendation, migration.

    What can be computed is computed by the planner; judgements carry source and date; what is not known says so.
    With --check, instead: the claims of a document against catalog, prices and arithmetic, each finding with its line,
    the right figure and its source. Found claims are a result: the exit code is 0, or 1 with --strict.
    """
    if check is not None:
        if file is not None or report or migration or profiles or weight:
            raise InputError("--check is another task", hint="check the document and compare in two commands")
        check_document_file(session, check, strict=strict, every_claim=every_claim)
        return
    if strict or every_claim:
        raise InputError("--strict and --all go with --check", hint="tonnage compare --check FILE.md --strict")
    if file is None:
        hint = "give a compare file: tonnage compare FILE.tonnage.yaml, or a document: tonnage compare --check FILE.md"
        raise InputError("nothing to compare", hint=hint)
    weights = read_weights(weight or ())
    report_comparison(
        session, file, report or [], migration or [], profiles or [], weights, memory_margin=memory_margin
    )


LARGEST_DOCUMENT_BYTES: Final = 20_000_000


def check_document_file(session: Session, file: str, *, strict: bool, every_claim: bool) -> None:
    """Check every claim of a document and show the findings. With `strict`, ClaimsFound on wrong or stale ones."""
    path = Path(file)
    text = read_document(path)
    from tonnage.api import load_catalog
    from tonnage.claims import check_document
    from tonnage.reports.claims import claims_report

    known = load_catalog(settings=session.settings)
    with session.progress(f"checking {path.name}"):
        checked = check_document(text, known, name=path.name)
    session.show(claims_report(checked, every_claim=every_claim))
    if strict and checked.alarms:
        raise ClaimsFound(
            f"{path.name} has {len(checked.alarms)} wrong or stale claims",
            hint="correct them, or leave --strict out to see them and exit 0",
        )


def read_document(path: Path) -> str:
    """The text of a document; InputError where there is none to read."""
    hint = "give a Markdown file, UTF-8, such as comparison.md"
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", hint=hint) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    if len(raw) > LARGEST_DOCUMENT_BYTES:
        raise InputError(f"{path} is larger than {LARGEST_DOCUMENT_BYTES // 10**6} MB", hint="check it in parts")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})", hint=hint) from error
    if "\0" in text:
        raise InputError(f"{path} is not text: it holds zero bytes", hint=hint)
    if not text.strip():
        raise InputError(f"{path} is empty", hint=hint)
    return text


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
