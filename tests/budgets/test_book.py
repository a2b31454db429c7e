"""The book of budgets: its file, its periods, and reservations that never pass a cap, whoever dies when."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.committing import bound_micro_usd
from tonnage.budgets.book import ReservationBook, ReservationRequest
from tonnage.budgets.file import Budget, read_budgets
from tonnage.budgets.settling import LOST_AFTER, sweep
from tonnage.budgets.standing import SettledCost, standing_of
from tonnage.errors import InputError, PlanRefused
from tonnage.runs import EventKind, RunFolder
from tonnage.runs.spec import ChargeSpec, DataSource, DataSpec, GuardSpec, RunSpec

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
RANKING = ChargeSpec(project="search", team="ranking", labels=(("cost-center", "a42"),))
KILLED = """
import os, signal, sys
from pathlib import Path
from tonnage.budgets.book import ReservationBook, ReservationRequest
from tonnage.runs.spec import ChargeSpec
home = Path(sys.argv[1])
ReservationBook(home / "budgets.db").reserve(
    ReservationRequest(run="one", folder=home / "runs" / "one", charge=ChargeSpec(), bound_micro_usd=5_000_000), ())
os.kill(os.getpid(), signal.SIGKILL)
"""


def budget(usd: str = "10", **said: Any) -> Budget:
    values: dict[str, Any] = {"name": "one", "usd": Decimal(usd), "period": "day"}
    return Budget(**values | said)


def asked(bound: int | None, folder: Path = Path("/none"), charge: ChargeSpec = RANKING) -> ReservationRequest:
    return ReservationRequest(run=folder.name, folder=folder, charge=charge, bound_micro_usd=bound)


def spec(**guard: Any) -> RunSpec:
    return RunSpec(
        name="one", task="mlp", data=DataSpec(train=DataSource(location="rows.csv", format="csv")),
        guard=GuardSpec(**{"usd_per_hour": 60.0} | guard),
    )  # fmt: skip


def ended_run(folder: RunFolder, *, started: datetime, seconds: float) -> None:
    """A run that was started and succeeded, as its journal tells."""
    folder.create(spec(), submitted={"name": "one"})
    folder.record(EventKind.STARTED, who="supervisor", at=started)
    folder.record(EventKind.SUCCEEDED, who="supervisor", at=started + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[budgets.a]\nusd = 1\nperiod = 'year'\n", "budgets.a.period"),
        ("[budgets.a]\nusd = -1\nperiod = 'day'\n", "budgets.a.usd"),
        ("[budgets.a]\nusd = 1\nperiod = 'day'\nteams = 'x'\n", "budgets.a.teams"),
        ("[budgets.a]\nudsd = 1\nperiod = 'day'\n", "unknown key 'udsd'"),
        ("[budgets.a]\nusd = 1.0000001\nperiod = 'day'\n", "found 1.0000001, expected at most 6 decimal places"),
        ("[budgets.a]\nusd = true\nperiod = 'day'\n", "budgets.a.usd"),
        ("[budgets.'a b']\nusd = 1\nperiod = 'day'\n", "cannot be the name"),
        ("[teams.a]\n", "teams: not a key"),
        ("budgets = 3\n", "not a table"),
        ("[budgets", "budgets.toml"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    """Every fault is an InputError with file, key and hint."""
    (tmp_path / "budgets.toml").write_text(text)
    with pytest.raises(InputError, match=said) as fault:
        read_budgets(tmp_path / "budgets.toml")
    assert fault.value.hint


@pytest.mark.parametrize(
    ("named", "applies"),
    [
        ({}, True),
        ({"project": "search"}, True),
        ({"team": "ads"}, False),
        ({"environment": "prod"}, False),
        ({"labels": {"cost-center": "a42"}}, True),
        ({"team": "ranking", "labels": {"cost-center": "b1"}}, False),
    ],
)
def test_a_budget_applies_where_all_that_it_names_agrees(named: dict[str, Any], applies: bool) -> None:
    """What a budget does not name does not matter; what a run does not state agrees with nothing."""
    assert budget(**named).applies_to(RANKING) is applies


def test_a_run_that_does_not_fit_is_told_which_budget_and_until_when(tmp_path: Path) -> None:
    """A reservation over two budgets is made in both or in none."""
    book = ReservationBook(tmp_path / "budgets.db")
    budgets = (budget("100", name="wide", period="month"), budget("10", name="narrow", team="ranking"))
    book.reserve(asked(6_000_000), budgets, now=NOW)
    with pytest.raises(PlanRefused, match=r"'narrow' \(team=ranking\).*\$4.00 of \$10.00 is left until 2026-11-25 00"):
        book.reserve(asked(6_000_000), budgets, now=NOW)
    assert standing_of(budgets[0], book.commitments(), NOW).committed_micro_usd == 6_000_000
    book.reserve(asked(4_000_000), budgets, now=NOW)
    book.reserve(asked(6_000_000, charge=ChargeSpec()), budgets, now=NOW)  # the narrow one does not apply


def test_unknown_cost_is_not_free(tmp_path: Path) -> None:
    """A hard budget refuses it; a soft one takes it, and says that its sums lack it."""
    book = ReservationBook(tmp_path / "budgets.db")
    with pytest.raises(PlanRefused, match="not known"):
        book.reserve(asked(None), (budget(),), now=NOW)
    soft = budget(at_limit="soft")
    book.reserve(asked(None), (soft,), now=NOW)
    assert standing_of(soft, book.commitments(), NOW).unknown == 1


@pytest.mark.parametrize(
    ("guard", "high", "bound"),
    [
        ({"max_cost_usd": 5.0}, 3.0, 5_000_000),
        ({"max_cost_usd": 5.0, "max_s": 60.0}, None, 1_000_000),
        ({}, 3.0, 3_000_000),
        ({}, None, None),
        ({"usd_per_hour": None, "max_s": 60.0}, None, None),
        ({"usd_per_hour": 0.0}, None, 0),
    ],
)
def test_the_bound_is_the_lowest_limit_else_the_prediction(
    guard: dict[str, Any], high: float | None, bound: int | None
) -> None:
    """Limits go before the prediction; without a price nothing is known."""
    prediction = {} if high is None else {"figures": {"cost_usd": {"value": 1.0, "low": 0.5, "high": high}}}
    assert bound_micro_usd(spec(**guard), prediction) == bound


def test_spending_counts_where_its_hours_lie(tmp_path: Path) -> None:
    """Half of a night's spending is each day's; the forecast is at the pace so far."""
    book = ReservationBook(tmp_path / "budgets.db")
    number = book.reserve(asked(8_000_000), (), now=NOW)
    night = datetime(2026, 11, 23, 18, tzinfo=UTC)
    book.settle(number, SettledCost(micro_usd=4_000_000, started_at=night, ended_at=night + timedelta(hours=12)))
    known = book.commitments()
    today = standing_of(budget(), known, NOW)
    assert (today.spent_micro_usd, today.committed_micro_usd, today.forecast_micro_usd) == (2_000_000, 0, 4_000_000)
    assert standing_of(budget(), known, NOW + timedelta(days=1)).spent_micro_usd == 0
    assert standing_of(budget(period="lifetime"), known, NOW).spent_micro_usd == 4_000_000


def test_a_run_that_ended_is_settled_by_its_hours(tmp_path: Path) -> None:
    """90 s at $60 an hour, billed by the minute: $2 of the $9 that were reserved; a second look changes nothing."""
    book, folder = ReservationBook(tmp_path / "budgets.db"), RunFolder(tmp_path / "runs" / "one")
    number = book.reserve(asked(9_000_000, folder.path), (), now=NOW)
    ended_run(folder, started=NOW, seconds=90)
    book.mark_started(number)
    for _ in range(2):
        sweep(book, now=NOW + timedelta(hours=1))
        standing = standing_of(budget(), book.commitments(), NOW + timedelta(hours=1))
        assert (standing.spent_micro_usd, standing.committed_micro_usd) == (2_000_000, 0)


def test_a_folder_deleted_before_its_settlement_counts_in_full(tmp_path: Path) -> None:
    """What it took can no longer be known: never less than was reserved."""
    book = ReservationBook(tmp_path / "budgets.db")
    book.mark_started(book.reserve(asked(9_000_000, tmp_path / "gone"), (), now=NOW))
    sweep(book, now=NOW + timedelta(hours=1))
    assert standing_of(budget(), book.commitments(), NOW).committed_micro_usd == 0
    assert standing_of(budget(period="lifetime"), book.commitments(), NOW).spent_micro_usd == 9_000_000


def test_a_supervisor_that_dies_holds_nothing(tmp_path: Path) -> None:
    """A run that was submitted and never heard of is lost, and its reservation goes; a young one keeps it."""
    book, folder = ReservationBook(tmp_path / "budgets.db"), RunFolder(tmp_path / "runs" / "one")
    at = datetime.now(UTC)
    number = book.reserve(asked(9_000_000, folder.path), (), now=at)
    folder.create(spec(), submitted={"name": "one"})
    book.mark_started(number)
    sweep(book, now=at + LOST_AFTER / 2)
    assert len(book.commitments()) == 1
    sweep(book, now=at + LOST_AFTER)
    assert book.commitments() == ()


def test_a_client_killed_before_the_start_leaves_nothing_held(tmp_path: Path) -> None:
    """kill -9 between reservation and start: the next look releases it; that of a living client stays."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, env=dict(os.environ))
    assert done.returncode == -9
    book = ReservationBook(tmp_path / "budgets.db")
    book.reserve(asked(1_000_000, tmp_path / "runs" / "two"), ())
    assert len(book.commitments()) == 2
    sweep(book)
    assert [one.run for one in book.commitments()] == ["two"]
