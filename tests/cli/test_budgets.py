"""`tonnage budgets`, and `tonnage run` under budgets, as a user types them, over a worker that pretends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
FAKE = {"TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none"}
PRICED = ("--usd-per-hour", "60", "--team", "ranking")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A specification whose rows are there, of a project."""
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    path = tmp_path / "one.json"
    data = {"train": {"location": str(tmp_path / "rows.csv"), "format": "csv"}}
    path.write_text(json.dumps({"name": "one", "task": "mlp", "data": data, "charge": {"project": "search"}}))
    return str(path)


@pytest.fixture
def budgets(tmp_path: Path) -> Path:
    """A hard budget of a team, and a soft one of a project."""
    file = tmp_path / "home" / "budgets.toml"
    file.parent.mkdir()
    file.write_text(
        "[budgets.ranking]\nusd = 10\nperiod = 'month'\nteam = 'ranking'\n"
        "[budgets.search]\nusd = 2.5\nperiod = 'lifetime'\nproject = 'search'\nat_limit = 'soft'\n"
    )
    return file


def listed(inside: Run) -> dict[str, dict[str, object]]:
    document = json.loads(inside("budgets", "list", "-o", "json").stdout)
    assert document["schema"] == "tonnage/budgets@1"
    return {one["name"]: one for one in document["budgets"]}


def test_a_run_over_a_hard_budget_is_refused(inside: Run, spec: str, budgets: Path) -> None:
    """Exit code 4, which budget, how much is left and until when; nothing is made, in a dry run too."""
    for more in ((), ("--dry-run",)):
        done = inside("run", spec, *PRICED, "--max-cost", "11", *more)
        assert done.returncode == 4
        assert "the budget 'ranking' (team=ranking) has no room" in done.stderr
        assert "$10.00 of $10.00 is left until 20" in done.stderr
        assert "hint:" in done.stderr
    assert [one.name for one in budgets.parent.iterdir()] == ["budgets.toml"]
    assert listed(inside)["ranking"]["left_usd"] == 10


@pytest.mark.usefixtures("budgets")
def test_a_run_whose_cost_is_unknown_is_refused(inside: Run, spec: str) -> None:
    """A hard budget is not held by what nobody knows."""
    done = inside("run", spec, "--team", "ranking")
    assert done.returncode == 4
    assert "what the run may cost is not known" in done.stderr


def test_a_label_is_a_name_and_a_value(inside: Run, spec: str) -> None:
    """Anything else is bad usage."""
    done = inside("run", spec, "--label", "a42", "--dry-run")
    assert done.returncode == 2
    assert "expected NAME=VALUE" in done.stderr


@pytest.mark.usefixtures("budgets")
def test_a_run_under_budgets_is_warned_reserved_and_settled(inside: Run, tonnage: Run, spec: str) -> None:
    """A soft budget warns and lets it run; at the end a billed minute is spent of what was reserved."""
    done = tonnage("run", spec, *PRICED, "--max-cost", "9", "-y", env=FAKE | {"TONNAGE_FAKE": '{"steps": 3}'})
    assert done.returncode == 0, done.stderr
    assert "the budget 'search' (project=search) has no room" in done.stderr
    found = listed(inside)
    assert (found["ranking"]["committed_usd"], found["ranking"]["spent_usd"], found["ranking"]["left_usd"]) == (0, 1, 9)
    assert found["search"]["left_usd"] == 1.5
    assert found["search"]["forecast_usd"] is None
    refused = tonnage("run", spec, "--name", "two", *PRICED, "--max-cost", "9.5", env=FAKE)
    assert refused.returncode == 4
    assert "$9.00 of $10.00 is left" in refused.stderr


def test_a_file_is_checked(inside: Run, budgets: Path) -> None:
    """What it states, or exit code 2 with the key; a home without budgets says so."""
    assert "team=ranking" in inside("budgets", "check", str(budgets)).stdout
    budgets.write_text("[budgets.a]\nusd = 1\nperiod = 'year'\n")
    done = inside("budgets", "check", str(budgets))
    assert done.returncode == 2
    assert "budgets.a.period" in done.stderr
    budgets.unlink()
    assert "names no budget" in inside("budgets", "list").stderr


def test_a_resumed_run_reserves_anew(inside: Run, tonnage: Run, spec: str, budgets: Path) -> None:
    """Refused without a trace where nothing is left; else only its new hours are added to what was settled."""
    failing = FAKE | {"TONNAGE_FAKE": '{"steps": 30, "crash_at": 3}'}
    done = tonnage("run", spec, *PRICED, "--max-cost", "9", "--max-restarts", "0", "-y", env=failing)
    assert done.returncode == 1, done.stderr
    assert listed(inside)["ranking"]["spent_usd"] == 1
    journal = budgets.parent / "runs" / "one" / "journal.jsonl"
    before, stated = journal.read_text(), budgets.read_text()
    budgets.write_text(stated.replace("usd = 10", "usd = 8"))
    refused = tonnage("resume", "one", env=FAKE)
    assert refused.returncode == 4
    assert "$7.00 of $8.00 is left" in refused.stderr
    assert "it may cost $8.00" in refused.stderr
    assert journal.read_text() == before
    budgets.write_text(stated)
    again = tonnage("resume", "one", env=FAKE | {"TONNAGE_FAKE": '{"steps": 30}'})
    assert again.returncode == 0, again.stderr
    found = listed(inside)["ranking"]
    assert (found["committed_usd"], found["spent_usd"]) == (0, 2)
    assert tonnage("runs", "rm", "one", "-y").returncode == 0
    assert listed(inside)["ranking"]["spent_usd"] == 2
