"""`tonnage explain --flips`: what would have flipped a loser, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .conftest import SMALL, Run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "bert-finetune.tonnage.yaml")


def explained(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("explain", EXAMPLE, *arguments, "--as-of", "2026-11-20", "--catalog", SMALL, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["flips"]
    return found


def test_a_named_machine_is_told_what_would_make_it_win(inside: Run) -> None:
    """With a name the changes come by themselves, a price among them, at which it wins."""
    flips = explained(inside, "p4d.24xlarge", "--flips", "2", "--platform", "vm")
    assert {flip["instance_type"] for flip in flips} == {"p4d.24xlarge"}
    assert {flip["becomes"] for flip in flips if flip["limit"] == "price"} == {"winner"}


def test_a_whole_plan_works_them_out_only_when_asked(inside: Run) -> None:
    """They take a plan or ten each, so the whole plan has none unless a number is given."""
    assert explained(inside) == []
    assert {flip["instance_type"] for flip in explained(inside, "--flips", "1")}
