"""docs/cli.md says what the commands say."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from tonnage.api.examining import EXTRAS
from tonnage.cli.app import build_app
from tonnage.cli.reference import render_reference

ROOT = Path(__file__).parents[2]


def test_docs_are_fresh() -> None:
    """docs/cli.md is what the commands' own help makes it: `python -m tonnage.cli.reference > docs/cli.md`."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == render_reference()


def commands(command: object, path: str = "tonnage") -> list[tuple[str, object]]:
    members = getattr(command, "commands", {})
    return [(path, command), *(pair for name, one in members.items() for pair in commands(one, f"{path} {name}"))]


def test_everything_has_help() -> None:
    """Every command, argument and option explains itself, and every command has its section."""
    text = render_reference()
    for path, command in commands(get_command(build_app())):
        assert command.help, path  # type: ignore[attr-defined]
        assert f"\n## {path}\n" in text
        for parameter in command.params:  # type: ignore[attr-defined]
            assert parameter.help, f"{path} {parameter.name}"


def test_doctor_knows_every_extra() -> None:
    """The extras that the doctor looks for are those of pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    assert set(re.findall(r"^(\w+) = \[", section, re.MULTILINE)) - {"dev"} == set(EXTRAS)
