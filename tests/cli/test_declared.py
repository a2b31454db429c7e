"""Options of a verb are declared once: the command's flags, defaults and ranges are those of the options class."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import tonnage
from tonnage.api.declaring import Options, option
from tonnage.api.plan_options import PlanOptions
from tonnage.api.reading import read_seconds
from tonnage.cli.declared import Commands, ReportSession
from tonnage.errors import InputError
from tonnage.overrides import NAMES
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Options):
    """One option of each kind."""

    hours: float = option("--hours", "Needed.", metavar="H", least=0)
    names: tuple[str, ...] = option("--name", "Several.", default=())
    share: float = option("--share", "A part.", default=0.25, least=0, most=1)
    delay_s: float = option("--delay", "A time.", default=300.0, read=read_seconds, text="5m")
    limit: int | None = option("--limit", "None: no limit.", default=None, least=1)
    fixed: bool = option("--fixed", "A flag.", default=False)


def asked_by(*words: str) -> Sample | None:
    """The options that a command line gives; None where it is refused."""
    seen: list[Sample] = []

    app = Commands()

    @app.command()
    def command(file: Annotated[str, typer.Argument()], asked: Sample, quiet: bool = False) -> None:
        assert (file, quiet) == ("FILE", False)
        seen.append(asked)

    result = CliRunner().invoke(app, ["FILE", *words])
    if isinstance(result.exception, InputError):
        raise result.exception
    return seen[0] if seen else None


def test_defaults_are_those_of_the_class() -> None:
    """A command line that says nothing gives the class's own defaults."""
    assert asked_by("--hours", "2") == Sample(hours=2)


def test_flags_become_fields() -> None:
    """Repeated flags are a tuple, times are seconds."""
    words = [
        "--hours",
        "2",
        "--name",
        "a",
        "--name",
        "b",
        "--share",
        "0.5",
        "--delay",
        "90s",
        "--limit",
        "3",
        "--fixed",
    ]
    expected = Sample(hours=2, names=("a", "b"), share=0.5, delay_s=90, limit=3, fixed=True)
    assert asked_by(*words) == expected


@pytest.mark.parametrize("words", [[], ["--hours", "-1"], ["--hours", "2", "--share", "1.5"]])
def test_a_command_refuses_what_the_class_refuses(words: list[str]) -> None:
    """What is missing or out of range never reaches the verb."""
    assert asked_by(*words) is None


def test_a_text_that_cannot_be_read_names_its_flag() -> None:
    """A time that is none is an InputError with the flag's name."""
    with pytest.raises(InputError, match="--delay: found 'soon'"):
        asked_by("--hours", "2", "--delay", "soon")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"share": 1.5}, "found 1.5 for share, expected 0 to 1"), ({"share": float("nan")}, "found nan for share"),
     ({"limit": 0}, "expected at least 1")],
)  # fmt: skip
def test_ranges_hold_in_python_too(given: dict[str, Any], said: str) -> None:
    """A number outside its range is refused when the value is made."""
    with pytest.raises(InputError, match=said):
        Sample(hours=1, **given)


def test_a_session_is_opened_from_its_flags_alone() -> None:
    """A command has the flags that its session names, and no others; what they say is in the session."""
    seen: list[tuple[str, bool, bool]] = []
    app = Commands()

    @app.command()
    def command(*, session: ReportSession) -> None:
        seen.append((session.settings.output, session.quiet, session.form_given))

    runner = CliRunner()
    assert runner.invoke(app, ["-o", "csv", "-q"]).exit_code == 0
    assert runner.invoke(app, []).exit_code == 0
    assert seen == [("csv", True, True), ("table", False, False)]
    assert runner.invoke(app, ["--catalog", "here"]).exit_code == 2


def test_the_options_of_a_plan_are_its_keywords() -> None:
    """`tonnage.plan` takes every field of PlanOptions by its name, with the same default."""
    keywords = inspect.signature(tonnage.plan).parameters
    constraints = {"providers", "platforms", "regions", "gpus", *PlanOptions().limits(), "trust", "exclude", "quotas"}
    for name, value in PlanOptions().keywords().items():
        if name in constraints:
            assert name in NAMES
        else:
            assert keywords[name].default == value
