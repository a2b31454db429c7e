"""`tonnage compare`: platforms compared for one's own work, or the claims of a document checked."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.check_document import check_document_file
from tonnage.cli.comparison_report import read_weights, report_comparison
from tonnage.cli.declared import PlanSession

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
    from tonnage.errors import InputError

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
