"""Verbs as functions: each gives the answer that its command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import InputError, NothingFits

EXAMPLES = Path(__file__).parents[1] / "examples"
DAY = "2026-11-20"
SERVICE: dict[str, Any] = {
    "kind": "serve",
    "model": "gpt2",
    "serve": {"rate_per_s": 5, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"},
}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints as JSON."""
    from tonnage.cli import run

    run([*words, "-o", "json"])
    return capsys.readouterr().out


def test_breakeven_answers_as_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON from function and command; a price that is half stated is refused."""
    file = tmp_path / "service.tonnage.yaml"
    file.write_text(json.dumps(SERVICE), encoding="utf-8")
    asked = tonnage.BreakEvenOptions(usd_per_million_input=0.5, usd_per_million_output=1.5)
    answer = tonnage.breakeven(file, asked, as_of=DAY, gpus="T4", providers="aws")
    assert answer.fault is None
    words = ["breakeven", str(file), "--input-usd", "0.5", "--output-usd", "1.5", "--gpu", "T4", "--provider", "aws"]
    assert answer.to_json() == printed(capsys, *words, "--as-of", DAY)
    with pytest.raises(InputError, match="--output-usd is missing"):
        tonnage.breakeven(SERVICE, tonnage.BreakEvenOptions(usd_per_million_input=1), as_of=DAY)


def test_a_service_that_no_machine_holds_has_a_fault() -> None:
    """`fault` says what the command ends with, `checked` raises it, and the report stands all the same."""
    hard = SERVICE | {"serve": SERVICE["serve"] | {"p95_latency": "1ms"}}
    asked = tonnage.BreakEvenOptions(usd_per_million_input=0.5, usd_per_million_output=1.5)
    answer = tonnage.breakeven(hard, asked, as_of=DAY, gpus="T4", providers="aws")
    assert isinstance(answer.fault, NothingFits)
    assert answer.to_json()
    with pytest.raises(NothingFits):
        answer.checked()


def test_rightsize_answers_as_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; headroom is part of the options."""
    usage = EXAMPLES / "usage.csv"
    answer = tonnage.rightsize(usage, tonnage.RightsizeOptions(headroom_fraction=0.5), as_of=DAY)
    assert answer.to_json() == printed(capsys, "rightsize", str(usage), "--headroom", "0.5", "--as-of", DAY)
    assert answer.found[0].usage.name == "fine-tuning"
