"""`tonnage mcp`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tonnage import __version__
from tonnage.cli.declared import opened_by
from tonnage.cli.session import Session

Folder = Annotated[
    Path, typer.Option("--folder", help="Workload files that agents may name.", metavar="FOLDER", file_okay=False)
]


def mcp(folder: Folder = Path(), *, session: Annotated[Session, opened_by("catalog", "as_of")]) -> None:
    """Answer an agent's questions over standard input and output, by the Model Context Protocol.

    Its tools are plan, size, explain, compare, catalog and gains, each with the report as text and the document of
    `-o json`, whose lists are cut. Nothing is bought, started or changed. An agent's program starts it:
    `{"command": "tonnage", "args": ["mcp", "--folder", "workloads"]}`.
    """
    from tonnage.agents.protocol import serve_lines
    from tonnage.agents.tools import agent_tools

    serve_lines(sys.stdin, sys.stdout, agent_tools(session.settings, folder.resolve()), __version__)
