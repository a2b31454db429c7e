"""`tonnage compare`: platforms compared for one's own work, or the claims of a document checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tonnage.cli import options
from tonnage.cli.comparison_report import read_weights, report_comparison
from tonnage.cli.declared import PlanSession
from tonnage.cli.session import Session
from tonnage.errors import ClaimsFound, InputError

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
