"""The store: what the rest of tonnage may ask of the database. Every call is one transaction."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from sqlalchemy import Connection, Insert, Row, Table, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from tonnage.calibration.columns import FACT_COLUMNS, KEPT_COLUMNS, FactTable, table_of
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.runs.folder import RunFolder
from tonnage.runs.guards import SpendSession, sessions_of
from tonnage.runs.journal import Event
from tonnage.runs.measured_rows import RUN_SOURCE
from tonnage.runs.spec import dump_spec
from tonnage.runs.states import RunState, state_of
from tonnage.store.database import Database
from tonnage.store.rows import PlanRow, RunRow, SpendRow
from tonnage.store.schema import EVENTS, MEASUREMENTS, PLANS, RUNS, SPEND

_BOOKED: Final = ("run", "device", "versions", "recorded_at")


def open_store(url: str) -> Store:
    """The store at a database URL, its tables made or brought up to date.

    Raises StoreError where the database is damaged, busy or newer than this tonnage.
    """
    database = Database(url)
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return Store(database)


class Store:
    """Runs, measurements, plans and spend in one database. Use as a context manager, or call `close`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._host = "" if database.is_sqlite else platform.node()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    # runs

    def index_run(self, folder: RunFolder) -> None:
        """Take a run folder into the index, or bring its entry up to date: new events, state, spend."""
        spec, events = folder.spec(), list(folder.events())
        state, path = state_of(events), str(folder.path.resolve())
        values = {
            "name": spec.name, "host": self._host, "folder": path, "task": spec.task, "model": spec.model,
            "runner": spec.launch.runner, "spec": dump_spec(spec), **_state_values(state),
        }  # fmt: skip
        with self._database.write() as connection:
            connection.execute(self._upsert(RUNS, values, ("host", "folder")))
            place = (RUNS.c.host == self._host) & (RUNS.c.folder == path)
            number = connection.execute(select(RUNS.c.id).where(place)).scalar_one()
            self._add_events(connection, number, events)
            for session in sessions_of(events, spec.guard):
                values = {"run_id": number, **_session_values(session)}
                connection.execute(self._upsert(SPEND, values, ("run_id", "session")))

    def forget_run(self, folder: RunFolder) -> None:
        """Take a run out of the index; its folder and its measurements stay."""
        with self._database.write() as connection:
            connection.execute(
                delete(RUNS).where(RUNS.c.host == self._host, RUNS.c.folder == str(folder.path.resolve()))
            )

    def runs(self, *, name: str | None = None, state: str | None = None) -> tuple[RunRow, ...]:
        """Runs of the index, the newest first."""
        spent = select(func.sum(SPEND.c.usd)).where(SPEND.c.run_id == RUNS.c.id).scalar_subquery()
        query = select(RUNS, spent.label("usd")).order_by(RUNS.c.submitted_at.desc().nulls_last(), RUNS.c.id.desc())
        if name is not None:
            query = query.where(RUNS.c.name == name)
        if state is not None:
            query = query.where(RUNS.c.state == state)
        with self._database.read() as connection:
            return tuple(_run_row(row) for row in connection.execute(query))

    def spend(self, *, run: str | None = None) -> tuple[SpendRow, ...]:
        """What the sessions of runs took, the oldest first."""
        columns = [column for column in SPEND.c if column.name != "run_id"]
        query = select(RUNS.c.name, *columns).join(RUNS).order_by(SPEND.c.started_at, SPEND.c.run_id, SPEND.c.session)
        if run is not None:
            query = query.where(RUNS.c.name == run)
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            SpendRow(
                run=row["name"], session=row["session"], started_at=datetime.fromisoformat(row["started_at"]),
                ended_at=_instant(row["ended_at"]), seconds=row["seconds"], usd_per_hour=row["usd_per_hour"],
                usd=row["usd"],
            )
            for row in rows
        )  # fmt: skip

    # measurements

    def add_measurements(
        self,
        rows: Sequence[Mapping[str, str]],
        *,
        table: FactTable | None = None,
        run: str | None = None,
        versions: str = "",
        recorded_at: datetime | None = None,
    ) -> int:
        """Keep rows in the columns of a facts file; a row whose cells are all known already is not kept again.

        Says how many were new. Their columns decide which table they belong to, unless it is named.
        """
        stamp = _text(recorded_at or datetime.now(UTC))
        added = 0
        with self._database.write() as connection:
            for row in rows:
                of = run or _run_of(row)
                name = table or _table_of(row)
                cells = {column: str(row.get(column, "")) for column in KEPT_COLUMNS[name]}
                booked = (of, row.get("gpu", ""), versions, stamp)
                values = {
                    "sha256": _digest(name, cells),
                    **dict(zip(_BOOKED, booked, strict=True)),
                    **cells,
                }
                insert = self._insert(MEASUREMENTS[name]).values(values).on_conflict_do_nothing()
                added += len(connection.execute(insert.returning(MEASUREMENTS[name].c.number)).all())
        return added

    def measurements(self, table: FactTable = "training", **filters: str) -> list[dict[str, str]]:
        """Rows in the columns of a facts file, in the order they came; of the optional ones, those that a row fills.

        A filter names a column of the file, or `run`, `device`, `versions`.
        """
        known, columns = MEASUREMENTS[table], KEPT_COLUMNS[table]
        query = select(*(known.c[column] for column in columns)).order_by(known.c.number)
        for name, wanted in filters.items():
            if name not in columns and name not in _BOOKED:
                hint = did_you_mean(nearest(name, [*columns, *_BOOKED], count=1), f"columns: {', '.join(columns)}")
                raise InputError(f"no column '{name}' in {table} measurements", hint=hint)
            query = query.where(known.c[name] == wanted)
        with self._database.read() as connection:
            rows = [dict(zip(columns, row, strict=True)) for row in connection.execute(query)]
        shown = [name for name in columns if name in FACT_COLUMNS[table] or any(row[name] for row in rows)]
        return [{name: row[name] for name in shown} for row in rows]

    # plans

    def add_plan(self, document: str, *, name: str, made_at: datetime | None = None) -> str:
        """Keep the JSON of a plan as it was asked for; its SHA-256, under which it is found again."""
        digest = hashlib.sha256(document.encode()).hexdigest()
        values = {"sha256": digest, "name": name, "made_at": _text(made_at or datetime.now(UTC)), "document": document}
        with self._database.write() as connection:
            connection.execute(self._insert(PLANS).values(values).on_conflict_do_nothing())
        return digest

    def plans(self, *, sha256: str | None = None) -> tuple[PlanRow, ...]:
        """Plans, the newest first; with `sha256` those whose digest begins so."""
        query = select(PLANS).order_by(PLANS.c.made_at.desc(), PLANS.c.sha256)
        if sha256 is not None:
            query = query.where(PLANS.c.sha256.startswith(sha256, autoescape=True))
        with self._database.read() as connection:
            return tuple(
                PlanRow(
                    sha256=row.sha256,
                    name=row.name,
                    made_at=datetime.fromisoformat(row.made_at),
                    document=row.document,
                )
                for row in connection.execute(query)
            )

    # inside

    def _add_events(self, connection: Connection, number: int, events: Sequence[Event]) -> None:
        """Those behind the newest known one: a journal is only appended to."""
        last = connection.execute(select(func.max(EVENTS.c.position)).where(EVENTS.c.run_id == number)).scalar()
        first = 0 if last is None else last + 1
        new = [_event_values(number, at, event) for at, event in enumerate(events[first:], start=first)]
        if new:
            connection.execute(self._insert(EVENTS).on_conflict_do_nothing(), new)

    def _insert(self, table: Table) -> Any:
        """Both databases can skip or update what is there; SQLAlchemy names that by database."""
        return sqlite.insert(table) if self._database.is_sqlite else postgresql.insert(table)

    def _upsert(self, table: Table, values: Mapping[str, Any], keys: Iterable[str]) -> Insert:
        keys = tuple(keys)
        insert = self._insert(table).values(values)
        changed = {name: insert.excluded[name] for name in values if name not in keys}
        return insert.on_conflict_do_update(index_elements=keys, set_=changed)  # type: ignore[no-any-return]


def _run_of(row: Mapping[str, str]) -> str | None:
    """Rows of runs name theirs as their source."""
    source = row.get("source", "")
    return source.removeprefix(RUN_SOURCE) if source.startswith(RUN_SOURCE) else None


def _table_of(row: Mapping[str, str]) -> FactTable:
    found = table_of(set(row))
    if found is None:
        strange = sorted(set(row) - set(KEPT_COLUMNS["training"]) - set(KEPT_COLUMNS["inference"]))
        what = f"no measured table has the column '{strange[0]}'" if strange else "columns of two measured tables"
        raise InputError(what, hint=f"training rows have {', '.join(FACT_COLUMNS['training'])}")
    return found


def _digest(table: FactTable, cells: Mapping[str, str]) -> str:
    """Of the cells every file has, and of those optional ones that are filled: older rows keep their digest."""
    cells_in_order: list[str | list[str]] = [cells[name] for name in FACT_COLUMNS[table]]
    cells_in_order += [[name, cell] for name, cell in cells.items() if cell and name not in FACT_COLUMNS[table]]
    return hashlib.sha256(json.dumps(cells_in_order, ensure_ascii=False).encode()).hexdigest()


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _state_values(state: RunState) -> dict[str, Any]:
    instants = {name: getattr(state, name) for name in ("submitted_at", "started_at", "ended_at")}
    return {
        "state": state.state.value,
        "reason": state.reason.value if state.reason else None,
        "message": state.message,
        **{name: None if at is None else _text(at) for name, at in instants.items()},
        "attempt": state.attempt,
        "step": state.step,
        "lost_steps": state.lost_steps,
        "events": state.events,
    }


def _session_values(session: SpendSession) -> dict[str, Any]:
    return {
        "session": session.number,
        "started_at": _text(session.started_at),
        "ended_at": None if session.ended_at is None else _text(session.ended_at),
        "seconds": session.seconds,
        "usd_per_hour": session.usd_per_hour,
        "usd": session.usd,
    }


def _event_values(number: int, position: int, event: Event) -> dict[str, Any]:
    return {
        "run_id": number,
        "position": position,
        "at": _text(event.at),
        "kind": event.kind.value,
        "who": event.who,
        "fields": json.dumps(dict(event.fields), ensure_ascii=False, sort_keys=True),
    }


def _run_row(row: Row[Any]) -> RunRow:
    values = dict(row._mapping)
    for name in ("id", "spec"):
        del values[name]
    for name in ("submitted_at", "started_at", "ended_at"):
        values[name] = _instant(values[name])
    return RunRow(**values)
