"""Services and batches on budgets: leases that are renewed while there is room, and settled by what was spent."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.charging import LEASE_S, Lease, batch_reserved, leased
from tonnage.budgets.book import ReservationBook, ReservationRequest
from tonnage.budgets.file import read_budgets
from tonnage.budgets.settling import sweep
from tonnage.budgets.standing import SettledCost, standing_of
from tonnage.errors import PlanRefused
from tonnage.runs.spec import ChargeSpec
from tonnage.traffic.batch import BatchProgress

TEAM = ChargeSpec(team="ranking")
MANY = """
import sys, threading
from pathlib import Path
from tonnage.budgets.book import ReservationBook, ReservationRequest
from tonnage.budgets.file import read_budgets
from tonnage.errors import PlanRefused
from tonnage.runs.spec import ChargeSpec
home, taken, refused, together = Path(sys.argv[1]), [], [], threading.Barrier(125)
budgets = read_budgets(home / "budgets.toml")
def start(number):
    together.wait()
    try:
        ReservationBook(home / "budgets.db").reserve(ReservationRequest(
            run=f"{sys.argv[2]}-{number}", folder=home / "runs" / "x", charge=ChargeSpec(team="ranking"),
            bound_micro_usd=700_000), budgets)
        taken.append(number)
    except PlanRefused:
        refused.append(number)
threads = [threading.Thread(target=start, args=(number,)) for number in range(125)]
[one.start() for one in threads]
[one.join() for one in threads]
print(len(taken), len(refused))
"""


def home(folder: Path, usd: str = "10", at_limit: str = "hard") -> Path:
    (folder / "budgets.toml").write_text(
        f'[budgets.one]\nusd = {usd}\nperiod = "lifetime"\nat_limit = "{at_limit}"\nteam = "ranking"\n'
    )
    return folder


def standing(folder: Path) -> tuple[float, float]:
    """(spent, reserved) in dollars."""
    budget = read_budgets(folder / "budgets.toml")[0]
    found = standing_of(budget, ReservationBook(folder / "budgets.db").commitments(), datetime.now(UTC))
    return found.spent_micro_usd / 1e6, found.committed_micro_usd / 1e6


def test_a_lease_is_renewed_and_settled(tmp_path: Path) -> None:
    """A service of 4 dollars an hour reserves a quarter of an hour at a time; a day's leases are one line."""
    lease, began = Lease(home(tmp_path), "chat", TEAM, 4.0), datetime.now(UTC)
    assert standing(tmp_path) == (0.0, 1.0)
    assert lease.tick(0.2, began + timedelta(seconds=180))
    assert standing(tmp_path) == (0.0, 1.0)
    for number in (1, 2, 3):
        assert lease.tick(0.5 * number, began + timedelta(seconds=400 * number))
        assert standing(tmp_path) == (0.5 * number, 1.0)
    ended = began + timedelta(seconds=1300)
    lease.close(1.75, ended)
    assert standing(tmp_path) == (1.75, 0.0)
    held = ReservationBook(tmp_path / "budgets.db").commitments()
    assert [(one.kind, one.run, one.spent is not None) for one in held if one.spent] == [
        ("service", "chat", True)
    ] * len(held)
    assert 1 <= len(held) <= (1 if began.date() == ended.date() else 3)  # each day's, and the lease over midnight


def test_a_lease_that_finds_no_room_ends(tmp_path: Path) -> None:
    """What it holds stays reserved to its end, in which the service drains; nothing passes the limit on the way."""
    said: list[str] = []
    lease, began = Lease(home(tmp_path, "1.5"), "chat", TEAM, 4.0), datetime.now(UTC)
    assert lease.tick(0.6, began + timedelta(seconds=600))
    assert "no room for this service: $0.90 of $1.50 is left" in lease.refusal
    assert standing(tmp_path) == (0.0, 1.0)
    assert not lease.tick(0.9, began + timedelta(seconds=LEASE_S - 60))
    lease.close(0.95)
    assert standing(tmp_path) == (0.95, 0.0)
    with pytest.raises(PlanRefused, match="no room for this service"), leased(tmp_path, "more", TEAM, 4.0, said.append):
        pass
    with leased(tmp_path, "free", TEAM, 0.0, said.append) as free:
        assert free.tick(0.0)
    with pytest.raises(PlanRefused, match="what the service may cost is not known"), \
            leased(tmp_path, "unpriced", TEAM, None, said.append):  # fmt: skip
        pass
    with leased(tmp_path, "other", ChargeSpec(team="vision"), None, said.append):
        pass  # no budget of that team


def test_a_home_without_budgets_reserves_nothing(tmp_path: Path) -> None:
    """And a service without a price runs."""
    with leased(tmp_path, "chat", TEAM, None, print) as lease, batch_reserved(tmp_path, "out", TEAM, None):
        assert lease.tick(None)
    assert not (tmp_path / "budgets.db").exists()


def test_a_service_that_was_killed_counts_in_full(tmp_path: Path) -> None:
    """Its process is gone, so nothing is reserved any more, and what it held counts as spent."""
    Lease(home(tmp_path), "chat", TEAM, 4.0)
    book = ReservationBook(tmp_path / "budgets.db")
    sweep(book)
    assert standing(tmp_path) == (0.0, 1.0)  # this process lives
    with sqlite3.connect(book.path) as connection:
        connection.execute("UPDATE commitments SET pid = 999999999")
    sweep(book)
    assert standing(tmp_path) == (1.0, 0.0)


def progress(usd: float | None) -> BatchProgress:
    return BatchProgress(total=9, done_before=0, answered=1, failed=0, in_flight=0, limit=1, retries=0, seconds=1.0,
                         input_tokens=1, output_tokens=1, usd=usd)  # fmt: skip


def test_a_batch_reserves_its_limit_and_settles_what_it_took(tmp_path: Path) -> None:
    """Also where it is interrupted: what earlier runs of the command took is not counted twice."""
    home(tmp_path)
    with suppress(KeyboardInterrupt), batch_reserved(tmp_path, "out", TEAM, 6.0) as spend:
        assert standing(tmp_path) == (0.0, 6.0)
        with pytest.raises(PlanRefused, match=r"no room for this batch: \$4.00 of \$10.00"), \
                batch_reserved(tmp_path, "too", TEAM, 5.0):  # fmt: skip
            pass
        seen = spend.following(lambda _: None)
        for usd in (1.5, 2.0, 4.0):
            seen(progress(usd))
        raise KeyboardInterrupt
    assert standing(tmp_path) == (2.5, 0.0)
    with pytest.raises(PlanRefused, match="may cost is not known"), batch_reserved(tmp_path, "out", TEAM, None):
        pass


def test_the_book_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Version 1 had no kinds: all were runs."""
    path = tmp_path / "budgets.db"
    book = ReservationBook(path)
    number = book.reserve(ReservationRequest(run="one", folder=tmp_path, charge=TEAM, bound_micro_usd=5), ())
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE commitments DROP COLUMN kind")
        connection.execute("PRAGMA user_version = 1")
    book.settle(number, SettledCost(micro_usd=4, started_at=datetime.now(UTC), ended_at=datetime.now(UTC)))
    assert [(one.kind, one.run) for one in book.commitments()] == [("run", "one")]


@pytest.mark.heavy
def test_a_thousand_starts_at_once_pass_no_cap(tmp_path: Path) -> None:
    """Eight processes of 125 threads that all start together, each for 0.70 of 100 dollars: 142 get it, none more."""
    home(tmp_path, "100")
    script = tmp_path / "many.py"
    script.write_text(MANY)
    started = [subprocess.Popen([sys.executable, str(script), str(tmp_path), str(number)], stdout=subprocess.PIPE,
                                text=True) for number in range(8)]  # fmt: skip
    highest = _watched(tmp_path, started)
    told = [tuple(map(int, one.communicate()[0].split())) for one in started]
    assert (sum(taken for taken, _ in told), sum(refused for _, refused in told)) == (142, 858)
    assert highest <= 100_000_000
    assert standing(tmp_path) == (0.0, pytest.approx(99.4))


def _watched(folder: Path, started: list[subprocess.Popen[Any]]) -> int:
    """The most that was ever reserved, read while they run."""
    highest, done = 0, threading.Event()
    while not done.wait(0.05):
        if (folder / "budgets.db").exists():
            with sqlite3.connect(folder / "budgets.db", timeout=30) as connection:
                found = connection.execute("SELECT sum(bound_micro_usd) FROM commitments").fetchone() if _made(
                    connection) else (0,)  # fmt: skip
            highest = max(highest, found[0] or 0)
        if all(one.poll() is not None for one in started):
            done.set()
    return highest


def _made(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'commitments'").fetchone())
