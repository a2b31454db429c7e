"""`tonnage compare`: a document's claims checked."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.check_document import check_document_file

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
EveryClaim = Annotated[bool, typer.Option("--all", help="With --check: list the claims that hold, too.")]


def compare(
    check: Check = None,
    strict: Strict = False,
    every_claim: EveryClaim = False,
    catalog: options.CatalogFolder = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Check the claims of a document against catalog, prices and arithmetic: what is wrong, stale, partly so.

    Each finding has its line, the right figure, its source and the day that was read. Found claims are a result:
    the exit code is 0, or 1 with --strict.
    """
    if check is None:
        from tonnage.errors import InputError

        raise InputError("nothing to compare", hint="give a document: tonnage compare --check FILE.md")
    check_document_file(check, strict=strict, every_claim=every_claim, catalog=catalog, output=output, quiet=quiet)
