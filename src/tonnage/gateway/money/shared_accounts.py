"""What all workers of a gateway share: accounts of allowances, leases on them, attempts. SQLite or PostgreSQL.

A worker leases a part of what an account has left and spends it without asking. In every account, at every moment,
committed + leased <= cap, so that workers together cannot pass a cap, whichever of them is killed when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tonnage.errors import InputError
from tonnage.gateway.money.forecast import SAMPLES_TABLE, SpendSamples
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.values import dataclass

VERSION: Final = 1
FORGOTTEN_AFTER_S: Final = 3600.0  # a worker of another host that has not been heard of for so long is gone
MINUTES_KEPT_S: Final = 3600.0  # accounts of past minutes
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS accounts (allowance TEXT NOT NULL, begin BIGINT NOT NULL, committed BIGINT NOT NULL,"
    " leased BIGINT NOT NULL, wanted DOUBLE PRECISION NOT NULL DEFAULT 0, PRIMARY KEY (allowance, begin))",
    "CREATE TABLE IF NOT EXISTS leases (worker TEXT NOT NULL, allowance TEXT NOT NULL, begin BIGINT NOT NULL,"
    " amount BIGINT NOT NULL, PRIMARY KEY (worker, allowance, begin))",
    "CREATE TABLE IF NOT EXISTS workers (worker TEXT PRIMARY KEY, host TEXT NOT NULL, applied BIGINT NOT NULL,"
    " seen DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS attempts (id TEXT NOT NULL, request TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,"
    " key TEXT NOT NULL, team TEXT NOT NULL, project TEXT NOT NULL, route TEXT NOT NULL, deployment TEXT NOT NULL,"
    " status INTEGER NOT NULL, outcome TEXT NOT NULL, input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT,"
    " usd_pico BIGINT NOT NULL, estimated INTEGER NOT NULL, first_byte_s DOUBLE PRECISION, latency_s DOUBLE PRECISION)",
    "CREATE INDEX IF NOT EXISTS attempts_at ON attempts (at)",
    "CREATE TABLE IF NOT EXISTS flushes (worker TEXT PRIMARY KEY, number BIGINT NOT NULL)",
    SAMPLES_TABLE,
    "CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL)",
)
ATTEMPT_COLUMNS: Final = (
    "id", "request", "at", "key", "team", "project", "route", "deployment", "status", "outcome", "input_tokens",
    "output_tokens", "cached_tokens", "usd_pico", "estimated", "first_byte_s", "latency_s",
)  # fmt: skip
GROUPS: Final = ("key", "team", "project", "route", "deployment", "outcome")
AttemptRow = tuple[Any, ...]  # in the order of ATTEMPT_COLUMNS
AccountKey = tuple[str, int]  # an allowance's id, and when its window began


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAsk:
    """What a worker lacks of an account; `share`: what it would take, None: a fair part of the rest."""

    account: AccountKey
    cap: int
    need: int
    share: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMove:
    """A change of a worker's lease: `used` becomes committed, `returned` becomes free for others."""

    account: AccountKey
    used: int
    returned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """An account as it is: amounts in the allowance's unit."""

    account: AccountKey
    committed: int
    leased: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """`granted` by account; or `short`: the accounts that cannot give what was asked, with what they have left, and
    whether other workers have leases that they may return."""

    granted: Mapping[AccountKey, int]
    short: Mapping[AccountKey, int]
    others: bool


class LedgerSpeed(NamedTuple):
    """Means of a deployment's answers, in seconds; None: there are none of the kind."""

    first_byte_s: float | None
    token_s: float | None  # an output token, of whole requests
    output_tokens: float | None  # of those that have some
    request_s: float | None  # of those that write no tokens


class SharedAccounts(SpendSamples):
    """One connection, for one thread. `url`: a file's path, or postgresql://…"""

    def open(self) -> None:
        """Connect, make the tables where there are none. Raises AccountsError, InputError."""
        with self._write() as cursor:
            for table in _TABLES:
                cursor.execute(table)
            found = cursor.execute("SELECT version FROM version").fetchone()
            if found is None:
                self._run(cursor, "INSERT INTO version VALUES (?)", (VERSION,))
            elif found[0] > VERSION:
                raise AccountsError("the gateway's accounts were made by a newer tonnage", hint="upgrade tonnage")

    # what a worker does

    def join(self, worker: str, host: str, now_s: float) -> None:
        with self._write() as cursor:
            self._run(cursor, "INSERT INTO workers VALUES (?, ?, 0, ?)", (worker, host, now_s))

    def lease(self, worker: str, asks: Sequence[LeaseAsk], now_s: float) -> Granted:
        """Lease what is asked, all of it or nothing; more than that where few others may want it."""
        with self._write() as cursor:
            workers = self._run(
                cursor, "SELECT count(*) FROM workers WHERE seen >= ?", (now_s - FORGOTTEN_AFTER_S,)
            ).fetchone()[0]
            granted, short = {}, {}
            for ask in sorted(asks, key=lambda one: one.account):
                room = ask.cap - self._taken(cursor, ask.account)
                if room < ask.need:
                    short[ask.account] = max(room, 0)
                fair = room if workers <= 1 else room // (2 * workers)
                granted[ask.account] = max(ask.need, fair if ask.share is None else ask.share)
            if short:
                for account in short:
                    self._run(cursor, "UPDATE accounts SET wanted = ? WHERE allowance = ? AND begin = ?",
                              (now_s, *account))  # fmt: skip
                return Granted(granted={}, short=short, others=workers > 1)
            for account, amount in granted.items():
                self._run(cursor, "UPDATE accounts SET leased = leased + ? WHERE allowance = ? AND begin = ?",
                          (amount, *account))  # fmt: skip
                self._run(
                    cursor,
                    "INSERT INTO leases VALUES (?, ?, ?, ?) ON CONFLICT (worker, allowance, begin)"
                    " DO UPDATE SET amount = leases.amount + excluded.amount",
                    (worker, *account, amount),
                )
            return Granted(granted=granted, short={}, others=workers > 1)

    def apply(
        self,
        worker: str,
        moves: Sequence[LeaseMove],
        rows: Sequence[AttemptRow],
        *,
        number: int,
        journal_bytes: int,
        now_s: float,
    ) -> None:
        """Commit what was used and give back what was not, with the attempts, in one transaction.

        `number`: of the worker's flushes, from 1 on; one that is in already, its answer having been lost, changes
        nothing. `journal_bytes`: how much of the worker's journal this brings the accounts up to.
        """  # fmt: skip
        with self._write() as cursor:
            found = self._run(cursor, "SELECT number FROM flushes WHERE worker = ?", (worker,)).fetchone()
            if found is not None and int(found[0]) >= number:
                return
            self._run(
                cursor,
                "INSERT INTO flushes VALUES (?, ?) ON CONFLICT (worker) DO UPDATE SET number = excluded.number",
                (worker, number),
            )
            self._apply(cursor, worker, moves, rows)
            self._run(cursor, "UPDATE workers SET applied = ?, seen = ? WHERE worker = ?",
                      (journal_bytes, now_s, worker))  # fmt: skip

    def wanted_since(self, moment_s: float) -> frozenset[AccountKey]:
        """The accounts of which a worker was refused something since then."""
        with self._read() as cursor:
            rows = self._run(cursor, "SELECT allowance, begin FROM accounts WHERE wanted >= ?", (moment_s,)).fetchall()
        return frozenset((str(name), int(begin)) for name, begin in rows)

    def leases(self, worker: str) -> dict[AccountKey, int]:
        """What a worker has leased, as the accounts have it."""
        with self._read() as cursor:
            rows = self._run(
                cursor, "SELECT allowance, begin, amount FROM leases WHERE worker = ?", (worker,)
            ).fetchall()
        return {(str(name), int(begin)): int(amount) for name, begin, amount in rows}

    def applied(self, worker: str) -> int | None:
        """Bytes of a worker's journal that are in the accounts; None: no such worker, or one that has left."""
        with self._read() as cursor:
            found = self._run(cursor, "SELECT applied FROM workers WHERE worker = ?", (worker,)).fetchone()
        return None if found is None else int(found[0])

    def leave(self, worker: str, moves: Sequence[LeaseMove], rows: Sequence[AttemptRow]) -> None:
        """The end of a worker, its own or after its death: what it used is committed, all its leases are given back."""
        with self._write() as cursor:
            self._apply(cursor, worker, moves, rows)
            self._give_back_leases(cursor, worker)
            self._run(cursor, "DELETE FROM flushes WHERE worker = ?", (worker,))
            self._run(cursor, "DELETE FROM workers WHERE worker = ?", (worker,))

    def tell_alive(self, worker: str, now_s: float) -> None:
        with self._write() as cursor:
            self._run(cursor, "UPDATE workers SET seen = ? WHERE worker = ?", (now_s, worker))

    def forget_silent(self, host: str, now_s: float) -> tuple[str, ...]:
        """Workers of other hosts that were not heard of for an hour give their leases back. Their names.

        They stay known: one that was suspended goes on, or its journal is brought in, with what it had spent. Whether a
        worker of this host is gone, the lock of its journal tells.
        """
        with self._write() as cursor:
            rows = self._run(
                cursor,
                "SELECT DISTINCT workers.worker FROM workers JOIN leases ON leases.worker = workers.worker"
                " WHERE seen < ? AND host <> ?",
                (now_s - FORGOTTEN_AFTER_S, host),
            ).fetchall()
            for (worker,) in rows:
                self._give_back_leases(cursor, str(worker))
        return tuple(str(worker) for (worker,) in rows)

    def forget_minutes(self, now_s: float) -> None:
        """Accounts of minutes long past go, and leases of past windows of which nothing is left."""
        over = int(now_s - MINUTES_KEPT_S)
        with self._write() as cursor:
            self._run(cursor, "DELETE FROM leases WHERE amount = 0 AND begin > 0 AND begin < ?", (over,))
            self._run(
                cursor,
                "DELETE FROM accounts WHERE leased = 0 AND begin < ? AND allowance LIKE ?",
                (over, "%/minute/%"),
            )

    # what pages and reports read

    def states(self) -> list[AccountState]:
        with self._read() as cursor:
            rows = cursor.execute("SELECT allowance, begin, committed, leased FROM accounts ORDER BY 1, 2").fetchall()
        return [
            AccountState(account=(name, begin), committed=int(done), leased=int(out)) for name, begin, done, out in rows
        ]

    def attempts(self, since_s: float = 0.0) -> list[dict[str, Any]]:
        """The attempts since then, oldest first, by column."""
        with self._read() as cursor:
            rows = self._run(
                cursor, f"SELECT {', '.join(ATTEMPT_COLUMNS)} FROM attempts WHERE at >= ? ORDER BY at, id", (since_s,)
            ).fetchall()
        return [dict(zip(ATTEMPT_COLUMNS, row, strict=True)) for row in rows]

    def spent(self, group: str, since_s: float) -> list[tuple[str, int, int, int, int, int]]:
        """(name, attempts, input tokens, output tokens, pico-dollars, those of them estimated) by a column of the
        attempts, dearest first."""
        if group not in GROUPS:
            raise InputError(f"nothing is spent by '{group}'", hint=f"one of {', '.join(GROUPS)}")
        with self._read() as cursor:
            rows = self._run(
                cursor,
                f"SELECT {group}, count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),"
                f" sum(usd_pico), sum(usd_pico * estimated) FROM attempts WHERE at >= ? GROUP BY {group}"
                " ORDER BY sum(usd_pico) DESC",
                (since_s,),
            ).fetchall()
        return [(str(row[0]), int(row[1]), int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in rows]

    def speeds(self, since_s: float) -> dict[str, LedgerSpeed]:
        """How fast answers since then were, by deployment; those of a classifier, which have no first byte, too."""
        with self._read() as cursor:
            rows = self._run(
                cursor,
                "SELECT deployment, avg(first_byte_s), sum(CASE WHEN output_tokens > 0 THEN latency_s END)"
                " / sum(output_tokens), avg(CASE WHEN output_tokens > 0 THEN output_tokens END),"
                " avg(CASE WHEN coalesce(output_tokens, 0) = 0 THEN latency_s END)"
                " FROM attempts WHERE at >= ? AND outcome IN ('ok', 'classifier') GROUP BY deployment",
                (since_s,),
            ).fetchall()
        return {
            str(name): LedgerSpeed(*(None if one is None else float(one) for one in means)) for name, *means in rows
        }

    def forget_attempts(self, before_s: float) -> None:
        """Attempts older than this are no longer kept; what they cost stays in the accounts."""
        with self._write() as cursor:
            self._run(cursor, "DELETE FROM attempts WHERE at < ?", (before_s,))

    # inside

    def _give_back_leases(self, cursor: Any, worker: str) -> None:
        left = self._run(
            cursor, "SELECT allowance, begin, amount FROM leases WHERE worker = ? ORDER BY allowance, begin", (worker,)
        ).fetchall()
        for name, begin, amount in left:
            self._run(cursor, "UPDATE accounts SET leased = leased - ? WHERE allowance = ? AND begin = ?",
                      (amount, name, begin))  # fmt: skip
        self._run(cursor, "DELETE FROM leases WHERE worker = ?", (worker,))

    def _taken(self, cursor: Any, account: AccountKey) -> int:
        """What is committed and leased of an account, whose row is locked until the transaction ends."""
        self._run(
            cursor, "INSERT INTO accounts VALUES (?, ?, 0, 0, 0) ON CONFLICT (allowance, begin) DO NOTHING", account
        )
        lock = " FOR UPDATE" if self._postgres else ""
        found = self._run(
            cursor, f"SELECT committed + leased FROM accounts WHERE allowance = ? AND begin = ?{lock}", account
        ).fetchone()
        return int(found[0])

    def _apply(self, cursor: Any, worker: str, moves: Sequence[LeaseMove], rows: Sequence[AttemptRow]) -> None:
        for move in sorted(moves, key=lambda one: one.account):
            self._taken(cursor, move.account)
            found = self._run(cursor, "SELECT amount FROM leases WHERE worker = ? AND allowance = ? AND begin = ?",
                              (worker, *move.account)).fetchone()  # fmt: skip
            gone = min(move.used + move.returned, 0 if found is None else int(found[0]))
            self._run(
                cursor,
                "UPDATE accounts SET committed = committed + ?, leased = leased - ? WHERE allowance = ? AND begin = ?",
                (move.used, gone, *move.account),
            )
            self._run(cursor, "UPDATE leases SET amount = amount - ? WHERE worker = ? AND allowance = ? AND begin = ?",
                      (gone, worker, *move.account))  # fmt: skip
        if rows:
            places = ", ".join("?" * len(ATTEMPT_COLUMNS))
            text = f"INSERT INTO attempts VALUES ({places})"
            cursor.executemany(self._text(text), rows)
