"""Answers in a notebook: what IPython's own display formatter makes of them is the part of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.reports.comparison.report import comparison_report
from tonnage.reports.html import render_html
from tonnage.testing.runs import write_run

formatters = pytest.importorskip("IPython.core.formatters")
EXAMPLES = Path(__file__).parents[1] / "examples"
DAY = "2026-11-20"


def plan_here(_: Path) -> Any:
    return tonnage.plan(EXAMPLES / "bert-finetune.tonnage.yaml", as_of=DAY)


def size_here(_: Path) -> Any:
    return tonnage.size(EXAMPLES / "bert-finetune.tonnage.yaml", gpus="T4", as_of=DAY)


def run_here(home: Path) -> Any:
    write_run(home / "runs" / "teach")
    return tonnage.show("teach")


def comparison_here(_: Path) -> Any:
    return tonnage.compare(EXAMPLES / "compare" / "h2o-vs-pytorch.tonnage.yaml", as_of=DAY)


@pytest.mark.heavy
@pytest.mark.parametrize("make", [plan_here, size_here, run_here, comparison_here])
def test_a_notebook_shows_the_part_of_the_page(
    make: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HTML what the page puts in its place for a report, styles inside and nothing of a whole document."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    answer = make(tmp_path)
    shown, _ = formatters.DisplayFormatter().format(answer)
    assert set(shown) >= {"text/html", "text/plain"}
    assert shown["text/html"] == render_html(answer.report().page(), fragment=True)
    assert "<table" in shown["text/html"]
    assert not any(part in shown["text/html"] for part in ("<html", "<script", "http-equiv"))


@pytest.mark.heavy
def test_a_comparison_is_what_it_was_and_shows_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fields as before, its page that of the command; with other weights another."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    found = comparison_here(tmp_path)
    assert found.ranking
    assert found.report().document() == comparison_report(found).document()
    file = EXAMPLES / "compare" / "h2o-vs-pytorch.tonnage.yaml"
    again = tonnage.compare(file, weights={"cost": 9.0}, as_of=DAY)
    assert again._repr_html_() != found._repr_html_()
