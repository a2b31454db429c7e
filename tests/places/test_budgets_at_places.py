"""Budgets where a run is carried out elsewhere: reserved at the place's price, asked before a place is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.contract import home_mark
from tonnage.runs.spec import ChargeSpec
from tonnage.testing import sshd

pytestmark = pytest.mark.skipif(bool(sshd.missing_binaries()), reason="needs openssh-server")
DEAR = """[places.dear]
kind = "ssh"
host = "127.0.0.1"
port = 1
folder = "/nowhere"
cores = 1
memory_gib = 1
usd_per_hour = 600.0

"""
LIMITED = ("--max-hours", "0.1")


def test_a_place_is_left_only_within_budgets(
    tmp_path: Path, box: Callable[..., str], desk_at: Callable[..., Any]
) -> None:
    """Six minutes at 60 USD an hour fit 10 USD; those at 600 do not: nothing of the run is touched then. Its bill is
    settled from the journal that came back."""
    desk = desk_at(tmp_path / "here", box(tmp_path / "there", usd_per_hour=60.0))
    (desk.home / "budgets.toml").write_text("[budgets.ours]\nusd = 10\nperiod = 'month'\nteam = 'ours'\n")
    spec = desk.spec("moved", charge=ChargeSpec(team="ours"))
    assert "the budget 'ours'" in desk.tonnage("run", spec, "--on", "box", "--max-hours", "0.2", code=4)
    desk.pretend(steps=400, step_s=0.02, checkpoint_every=5)
    desk.tonnage("run", spec, "--on", "box", *LIMITED, "-d")
    assert standing(desk) == {"spent": 0, "committed": 6, "left": 4}
    desk.wait(lambda: "running" in desk.tonnage("ps"))
    desk.tonnage("stop", "moved")
    assert standing(desk) == {"spent": 1, "committed": 0, "left": 9}
    file = desk.home / "places.toml"
    file.write_text(DEAR.replace("port = 1", port_of(file)) + file.read_text())
    journal = desk.folder("moved").journal_file.read_text()
    said = desk.tonnage("resume", "moved", "--on", "dear", code=4)
    assert "the budget 'ours'" in said
    assert "$9.00 of $10.00 is left" in said
    assert desk.folder("moved").journal_file.read_text() == journal
    assert (tmp_path / "there" / "runs" / home_mark(desk.home / "runs") / "moved").exists()


def port_of(file: Path) -> str:
    """The line of the real server's port, with what else a client needs to reach it."""
    lines = file.read_text().splitlines()
    return "\n".join(line for line in lines if line.split(" =")[0] in ("port", "key", "known_hosts", "python", "share"))


def standing(desk: Any) -> dict[str, float]:
    [one] = json.loads(desk.tonnage("budgets", "list", "-o", "json"))["budgets"]
    return {name: one[f"{name}_usd"] for name in ("spent", "committed", "left")}
