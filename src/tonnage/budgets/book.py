"""The book of reservations: one SQLite file at home. A reservation is made in one transaction over all budgets.

The file is the truth of what was reserved and settled; whether a run has ended is in the run's own folder
(`tonnage.budgets.settling` reads it). A service has no end that is known: it reserves a lease and renews it.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tonnage.budgets.file import Budget
from tonnage.budgets.standing import BudgetStanding, HolderKind, Reservation, SettledCost, standing_of
from tonnage.errors import PlanRefused, TonnageError
from tonnage.files import make_database_file, make_private_folder
from tonnage.runs.spec import ChargeSpec
from tonnage.values import dataclass

FILE_NAME: Final = "budgets.db"
BUSY_S: Final = 30.0  # a writer waits this long for another
_VERSION: Final = 2
_TABLE: Final = """CREATE TABLE IF NOT EXISTS commitments (
    number INTEGER PRIMARY KEY, run TEXT NOT NULL, folder TEXT NOT NULL, earlier_sessions INTEGER NOT NULL,
    charge TEXT NOT NULL, bound_micro_usd INTEGER, reserved_at TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    started INTEGER NOT NULL DEFAULT 0, settled INTEGER NOT NULL DEFAULT 0, spent_micro_usd INTEGER,
    spent_from TEXT, spent_to TEXT, kind TEXT NOT NULL DEFAULT 'run')"""
_COLUMNS: Final = (
    "number, run, charge, bound_micro_usd, reserved_at, settled, spent_micro_usd, spent_from, spent_to, kind"
)


class BookError(TonnageError):
    """The book of reservations cannot be used: nothing is started then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """What is to be reserved. `earlier_sessions`: those that the run had before, which are settled already."""

    run: str
    folder: Path
    charge: ChargeSpec
    bound_micro_usd: int | None
    earlier_sessions: int = 0
    kind: HolderKind = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEntry:
    """A reservation that is not settled, and who made it."""

    number: int
    folder: Path
    earlier_sessions: int
    bound_micro_usd: int | None
    reserved_at: datetime
    host: str
    pid: int
    started: bool  # whether its run's folder was there and its start was written down
    kind: HolderKind = "run"
    run: str = ""
    charge: ChargeSpec = ChargeSpec()  # frozen


class ReservationBook:
    """`path`: the file, made when something is reserved."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reserve(self, asked: ReservationRequest, budgets: Sequence[Budget], *, now: datetime | None = None) -> int:
        """Reserve over every budget that applies, or over none. The number of the reservation.

        Raises PlanRefused where a hard budget has not enough left, BookError where the file cannot be used.
        """
        at = now or datetime.now(UTC)
        with self._write() as connection:
            refuse(short_of(asked, budgets, _commitments(connection), at), asked)
            found = connection.execute(
                "INSERT INTO commitments (run, folder, earlier_sessions, charge, bound_micro_usd, reserved_at, host, "
                "pid, kind, started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (asked.run, os.path.relpath(asked.folder, self.path.parent), asked.earlier_sessions,
                 _charge_text(asked.charge), asked.bound_micro_usd, at.isoformat(), platform.node(), os.getpid(),
                 asked.kind, asked.kind != "run"),
            )  # fmt: skip
            assert found.lastrowid is not None
            return found.lastrowid

    def mark_started(self, number: int) -> None:
        """The run's start is written down: from now on its folder says how it goes on."""
        with self._write() as connection:
            connection.execute("UPDATE commitments SET started = 1 WHERE number = ?", (number,))

    def release(self, number: int) -> None:
        """Nothing was started: the reservation goes, as if it had not been."""
        with self._write() as connection:
            connection.execute("DELETE FROM commitments WHERE number = ? AND settled = 0", (number,))

    def settle(self, number: int, spent: SettledCost) -> None:
        """What it came to. A reservation that is settled already stays as it is."""
        with self._write() as connection:
            connection.execute(
                "UPDATE commitments SET settled = 1, spent_micro_usd = ?, spent_from = ?, spent_to = ? "
                "WHERE number = ? AND settled = 0",
                (spent.micro_usd, spent.started_at.isoformat(), spent.ended_at.isoformat(), number),
            )

    def renew(
        self, number: int, spent: SettledCost, bound_micro_usd: int | None, budgets: Sequence[Budget],
        *, now: datetime | None = None,
    ) -> None:  # fmt: skip
        """A lease is spent, and the next one is reserved in its place, or nothing is changed.

        What one day's leases took is one line of the book. Raises PlanRefused where the next one does not fit.
        """
        at = now or datetime.now(UTC)
        with self._write() as connection:
            if (row := _open_row(connection, number)) is None:
                raise BookError(f"reservation {number} is not open in {self.path}", hint="start the service again")
            old = _commitment(row)
            connection.execute("UPDATE commitments SET bound_micro_usd = 0 WHERE number = ?", (number,))
            _add_spent(connection, old, number, spent)
            asked = ReservationRequest(run=old.run, folder=Path(), charge=old.charge, bound_micro_usd=bound_micro_usd,
                                       kind=old.kind)  # fmt: skip
            refuse(short_of(asked, budgets, _commitments(connection), at), asked)
            connection.execute("UPDATE commitments SET bound_micro_usd = ?, reserved_at = ? WHERE number = ?",
                               (bound_micro_usd, at.isoformat(), number))  # fmt: skip

    def close_lease(self, number: int, spent: SettledCost) -> None:
        """The last lease of a service that ends: what it took, and nothing reserved any more."""
        with self._write() as connection:
            if (row := _open_row(connection, number)) is not None:
                _add_spent(connection, _commitment(row), number, spent)
                connection.execute("DELETE FROM commitments WHERE number = ?", (number,))

    def commitments(self) -> tuple[Reservation, ...]:
        """All of them, open and settled; none where nothing was ever reserved."""
        if not self.path.exists():
            return ()
        with self._write() as connection:
            return _commitments(connection)

    def open_entries(self) -> tuple[OpenEntry, ...]:
        """The reservations that are not settled."""
        if not self.path.exists():
            return ()
        with self._write() as connection:
            rows = connection.execute(
                "SELECT number, folder, earlier_sessions, bound_micro_usd, reserved_at, host, pid, started, kind, run, "
                "charge "
                "FROM commitments WHERE settled = 0"
            ).fetchall()
        return tuple(
            OpenEntry(number=row[0], folder=self.path.parent / row[1], earlier_sessions=row[2], bound_micro_usd=row[3],
                      reserved_at=datetime.fromisoformat(row[4]), host=row[5], pid=row[6], started=bool(row[7]),
                      kind=row[8], run=row[9], charge=_charge(row[10]))
            for row in rows
        )  # fmt: skip

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that all other users of the book wait for."""
        try:
            make_private_folder(self.path.parent)
            make_database_file(self.path)
            with (
                in_turn(self.path),
                closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as connection,
            ):
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._prepare(connection)
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise BookError(f"the book of budgets {self.path} cannot be used: {error}",
                            hint="check the disk and its permissions; nothing was started") from error  # fmt: skip

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise BookError(f"the book of budgets {self.path} was written by a newer tonnage", hint="upgrade tonnage")
        if version < _VERSION:
            connection.execute(_TABLE)
            if version == 1:
                connection.execute("ALTER TABLE commitments ADD COLUMN kind TEXT NOT NULL DEFAULT 'run'")
            connection.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """One writer after another, woken at once: SQLite alone lets a thousand of them sleep and try again."""
    try:
        import fcntl
    except ImportError:  # Windows: as SQLite does it
        yield
        return
    with path.with_name(f"{path.name}.turn").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # goes with the file
        yield


def short_of(
    asked: ReservationRequest, budgets: Sequence[Budget], commitments: Sequence[Reservation], now: datetime
) -> tuple[BudgetStanding, ...]:
    """The budgets that apply and in which the run does not fit."""
    applying = (standing_of(one, commitments, now) for one in budgets if one.applies_to(asked.charge))
    return tuple(one for one in applying if not one.takes(asked.bound_micro_usd))


def refuse(short: Sequence[BudgetStanding], asked: ReservationRequest) -> None:
    """PlanRefused where one of the budgets is hard."""
    from tonnage.budgets.standing import HINT_LEFT, HINTS_BOUND, shortage

    if hard := [one for one in short if one.budget.at_limit == "hard"]:
        hint = HINTS_BOUND[asked.kind] if asked.bound_micro_usd is None else HINT_LEFT
        words = (shortage(one, asked.bound_micro_usd, kind=asked.kind) for one in hard)
        raise PlanRefused("; ".join(words), hint=hint)


def _commitments(connection: sqlite3.Connection) -> tuple[Reservation, ...]:
    return tuple(_commitment(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM commitments"))


def _commitment(row: tuple[Any, ...]) -> Reservation:
    number, run, charge, bound, reserved_at, settled, spent, spent_from, spent_to, kind = row
    return Reservation(
        number=number, run=run, charge=_charge(charge), bound_micro_usd=bound,
        reserved_at=datetime.fromisoformat(reserved_at), kind=kind,
        spent=SettledCost(micro_usd=spent, started_at=datetime.fromisoformat(spent_from),
                    ended_at=datetime.fromisoformat(spent_to)) if settled else None,
    )  # fmt: skip


def _open_row(connection: sqlite3.Connection, number: int) -> tuple[Any, ...] | None:
    found = connection.execute(f"SELECT {_COLUMNS} FROM commitments WHERE number = ? AND settled = 0", (number,))
    row: tuple[Any, ...] | None = found.fetchone()
    return row


def _add_spent(connection: sqlite3.Connection, held: Reservation, number: int, spent: SettledCost) -> None:
    """Into the line of its day, or a new one."""
    if spent.micro_usd is not None:
        same_day = connection.execute(
            "SELECT number FROM commitments WHERE settled = 1 AND kind = ? AND run = ? AND charge = ? AND "
            "spent_micro_usd IS NOT NULL AND date(spent_to) = date(?) AND date(spent_from) = date(spent_to)",
            (held.kind, held.run, _charge_text(held.charge), spent.ended_at.isoformat()),
        ).fetchone()
        if same_day is not None:
            connection.execute(
                "UPDATE commitments SET spent_micro_usd = spent_micro_usd + ?, spent_to = ? WHERE number = ?",
                (spent.micro_usd, spent.ended_at.isoformat(), same_day[0]),
            )
            return
    connection.execute(
        "INSERT INTO commitments (run, folder, earlier_sessions, charge, bound_micro_usd, reserved_at, host, pid, "
        "started, settled, spent_micro_usd, spent_from, spent_to, kind) SELECT run, folder, 0, charge, NULL, "
        "reserved_at, host, pid, 1, 1, ?, ?, ?, kind FROM commitments WHERE number = ?",
        (spent.micro_usd, spent.started_at.isoformat(), spent.ended_at.isoformat(), number),
    )


def _charge_text(charge: ChargeSpec) -> str:
    named = {"project": charge.project, "team": charge.team, "environment": charge.environment}
    return json.dumps(named | {"labels": dict(charge.labels)}, sort_keys=True)


def _charge(text: str) -> ChargeSpec:
    read = json.loads(text)
    return ChargeSpec(**read | {"labels": tuple(read["labels"].items())})
