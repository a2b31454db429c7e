"""Run every `console` block of README.md and docs/, and write what the commands print today: `python docs/refresh.py`.

A block starts with `$ tonnage ...`; a comment behind it may say `exit N` (the expected exit code), `from WORD` (show
the output from the first line that starts with WORD) and `head N` (show N lines). «...» stands for what is left out.
A block of `yaml` whose first line names a file (`# examples/NAME`) shows that file. The picture of the README is drawn
too (`docs/picture.py`). `tests/test_docs.py` fails when a page is not what this would write.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

from tonnage.cli import run as run_line

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "tutorial",
            "portfolio",
            "break-even",
            "rightsizing",
            "serve",
            "scaling",
            "gateway",
            "checking-documents",
            "optimise",
        )
    ),
)
AS_OF = "2026-11-20T00:00Z"
COLUMNS = "112"
CONSOLE = re.compile(r"```console\n\$ (?P<command>[^\n#]+?)(?P<comment>  # [^\n]+)?\n(?P<output>.*?)```", re.DOTALL)
SHOWN_FILE = re.compile(r"```yaml\n# (?P<path>examples/[^\n]+)\n.*?```", re.DOTALL)


def run(command: str, comment: str) -> str:
    """What a command prints (messages after output), cut as the comment says; RuntimeError on another exit code."""
    code, printed, told = outcome(command)
    expected = int(found.group(1)) if (found := re.search(r"exit (\d+)", comment)) else 0
    if code != expected:
        raise RuntimeError(f"{command}: exit {code}, expected {expected}\n{told}")
    lines = cut((printed + told).rstrip("\n").splitlines(), comment)
    return "".join(line.rstrip() + "\n" for line in lines)


@cache  # pages show parts of the same output
def outcome(command: str) -> tuple[int, str, str]:
    """Exit code, output and messages of a command, run in this process."""
    program, *arguments = shlex.split(command)
    if program != "tonnage":
        raise RuntimeError(f"only tonnage is run in documents, not {program}")
    environment = {"COLUMNS": COLUMNS, "NO_COLOR": "1", "TONNAGE_AS_OF": AS_OF, "TONNAGE_HOME": os.devnull + "/none"}
    printed, told = io.StringIO(), io.StringIO()
    with chdir(ROOT), patch.dict(os.environ, environment), redirect_stdout(printed), redirect_stderr(told):
        code = run_line(arguments)
    return code, printed.getvalue(), told.getvalue()


def cut(lines: list[str], comment: str) -> list[str]:
    """The lines that the comment asks for; RuntimeError where no line starts with the word it names.

    >>> cut(["Plan", "Best", "  a", "  b", "Prices"], "from Best head 2")
    ['...', 'Best', '  a', '...']
    """
    if word := re.search(r"from (\w+)", comment):
        start = next((place for place, line in enumerate(lines) if line.startswith(word.group(1))), None)
        if start is None:
            raise RuntimeError(f"no line starts with {word.group(1)}")
        lines = ["...", *lines[start:]]
    if head := re.search(r"head (\d+)", comment):
        kept = int(head.group(1)) + bool(word)
        lines = [*lines[:kept], "..."]
    return lines


def refreshed(text: str) -> str:
    """The page with every block as it should be."""

    def console(match: re.Match[str]) -> str:
        command, comment = match["command"], match["comment"] or ""
        return f"```console\n$ {command}{comment}\n{run(command, comment)}```"

    def shown_file(match: re.Match[str]) -> str:
        content = (ROOT / match["path"]).read_text()
        return f"```yaml\n# {match['path']}\n{content}```"

    return SHOWN_FILE.sub(shown_file, CONSOLE.sub(console, text))


def main() -> None:
    for page in PAGES:
        page.write_text(refreshed(page.read_text()))
        print(f"wrote {page.relative_to(ROOT)}")
    subprocess.run([sys.executable, str(ROOT / "docs" / "picture.py")], check=True)


if __name__ == "__main__":
    main()
