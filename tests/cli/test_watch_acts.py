"""Alerts that act on runs whose worker pretends: a hard budget at its limit, a micro-batch that is halved."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_run import Run, home, pretend, spec, wait_for_step

import tonnage as package
from tonnage.api.backups import note_backup
from tonnage.api.watch import audit_lines, load_watch
from tonnage.api.watch_figures import home_figures, runs_of_budget
from tonnage.api.watch_hands import halve_micro_batch, stop_verified
from tonnage.errors import InputError
from tonnage.recipes.out_of_memory import journalled_micro_batch
from tonnage.runs import RunFolder, RunStatus
from tonnage.runs.liveness import is_held
from tonnage.settings import load_settings

__all__ = ["home", "spec"]
pytestmark = pytest.mark.heavy


def settings_of(home: Path) -> package.settings.Settings:
    return load_settings({}, {"TONNAGE_HOME": str(home.parent)}, home.parent.parent)


def test_a_hard_budget_at_its_limit_saves_verifies_and_stops(
    tonnage: Run, spec: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is stopped with a verified checkpoint once a budget was lowered below what is spent; others go on."""
    rules = replace(load_watch(None), every_s=0.2)  # the default rules, without their ten seconds between rounds
    monkeypatch.setattr("tonnage.api.watch.load_watch", lambda _: rules)
    settings = settings_of(home)
    home.parent.mkdir()
    file = home.parent / "budgets.toml"
    file.write_text('[budgets.team]\nusd = 900\nperiod = "month"\nteam = "ranking"\n')
    priced = ("--usd-per-hour", "60", "--max-cost", "500", "-d")
    assert tonnage("run", spec, *priced, "--team", "ranking", env=pretend(steps=100_000)).returncode == 0
    other = tonnage("run", spec, *priced, "--name", "two", "--team", "vision", env=pretend(steps=100_000))
    assert other.returncode == 0, other.stderr
    wait_for_step(home / "one", 5)
    wait_for_step(home / "two", 5)
    assert runs_of_budget(settings, "team") == ["one"]
    package.open_watch(options=package.WatchOptions(rounds=2), settings=settings)
    assert not RunFolder(home / "one").state().state.ended  # $1 of $900: a reservation is not spent
    file.write_text(file.read_text().replace("900", "0.5"))
    said: list[str] = []
    package.open_watch(options=package.WatchOptions(rounds=2), settings=settings, say=said.append)
    state = RunFolder(home / "one").state()
    assert (state.state, state.step) == (RunStatus.STOPPED, state.checkpoint_step)
    assert any("budget-limit: one is stopped: saved step" in line and "verified" in line for line in said), said
    assert not RunFolder(home / "two").state().state.ended
    done = [one for one in audit_lines(settings=settings).checked() if one.fields.get("rule") == "budget-limit"]
    assert [one.what for one in done if one.fields.get("action")] == ["due", "done"]


def test_half_of_the_micro_batch(tonnage: Run, spec: str, home: Path) -> None:
    """Saved, then on with half of it, until it is one; a run that has ended is said."""
    settings = settings_of(home)
    read = json.loads(Path(spec).read_text()) | {"training": {"global_batch": 4, "micro_batch": 2}}
    Path(spec).write_text(json.dumps(read))
    started = tonnage("run", spec, "-d", env=pretend(steps=100_000))
    assert started.returncode == 0, started.stderr
    wait_for_step(home / "one", 5)
    folder = RunFolder(home / "one")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in pretend(steps=100_000).items():
            patch.setenv(name, value)
        assert "goes on with a micro-batch of 1, it was 2" in halve_micro_batch(settings, "one")
    assert journalled_micro_batch(folder) == 1
    assert not folder.state().state.ended
    with pytest.raises(InputError, match="there is no smaller one"):
        halve_micro_batch(settings, "one")
    assert "saved step" in stop_verified(settings, "one")
    end = time.monotonic() + 60.0
    while is_held(folder.pid_file) and time.monotonic() < end:  # the supervisor's last words
        time.sleep(0.05)
    with pytest.raises(InputError, match="has ended"):
        stop_verified(settings, "one")


def test_figures_of_a_home(tmp_path: Path) -> None:
    """Budgets and backups; a home without them has none."""
    from datetime import UTC, datetime, timedelta

    settings, now = load_settings({}, {"TONNAGE_HOME": str(tmp_path)}, tmp_path), datetime.now(UTC)
    assert list(home_figures(settings, now)) == []
    (tmp_path / "budgets.toml").write_text('[budgets.one]\nusd = 10\nperiod = "lifetime"\n')
    note_backup(tmp_path, target="x")
    found = {key.metric: value for key, value in home_figures(settings, now + timedelta(hours=1))}
    assert (found["tonnage_budget_spent_to_limit_ratio"], found["tonnage_backup_failed_ratio"]) == (0.0, 0.0)
    assert found["tonnage_backup_age_seconds"] == pytest.approx(3600, abs=5)
    note_backup(tmp_path, why="the disk is full")
    assert {key.metric: value for key, value in home_figures(settings, now)}["tonnage_backup_failed_ratio"] == 1.0
