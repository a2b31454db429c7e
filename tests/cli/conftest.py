"""Run `tonnage` as a user does: in a process of its own, with a home and a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forked import run_tonnage

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BERT = str(EXAMPLES / "bert-finetune.tonnage.yaml")
SMALL = str(ROOT / "tests" / "data" / "catalog" / "small")  # five prices: for claims that any catalog can show
DAY = ("--as-of", "2026-11-20")

Run = Callable[..., subprocess.CompletedProcess[str]]
Forms = Callable[..., dict[str, str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No settings but a home of the test's own; 120 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TONNAGE_", "HF_"))}
    kept.pop("NO_COLOR", None)
    return kept | {
        "TONNAGE_HOME": str(tmp_path / "home"),
        "COLUMNS": "120",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUTF8": "1",
    }


@pytest.fixture
def tonnage(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run one command line; keyword `env` adds to the environment."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return run_tonnage(arguments, env=environment | (env or {}), cwd=tmp_path)

    return run


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same within this process, for the many cases that need no process of their own."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "TONNAGE_OUTPUT", "TONNAGE_AS_OF", "TONNAGE_CATALOG", "TONNAGE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        from tonnage.cli import run as run_line

        code = run_line(arguments)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


@pytest.fixture
def forms(inside: Run, monkeypatch: pytest.MonkeyPatch) -> Forms:
    """Run a line once; what it shows, by form, as `-o` would print it. For verbs that compute for seconds."""
    from tonnage.cli.session import Session
    from tonnage.reports.rendering import FORMATS, Look, Report, render_report

    shown: dict[str, str] = {}

    def show(_: Session, report: Report) -> None:
        shown.update({form: render_report(report, form, Look()) for form in FORMATS})

    def run(*arguments: str) -> dict[str, str]:
        shown.clear()
        monkeypatch.setattr(Session, "show", show)
        done = inside(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert set(shown) == set(FORMATS)
        return dict(shown)

    return run
