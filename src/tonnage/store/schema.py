"""The tables as they are now. How an older database comes to be so: `migrations/`.

Instants are text, ISO 8601 in UTC: they sort, and both databases keep them to the microsecond.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Float, ForeignKey, Integer, MetaData, String, Table, Text, UniqueConstraint

from tonnage.calibration.columns import FACT_COLUMNS, KEPT_COLUMNS, FactTable

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, index=True),
    Column("host", String(255), nullable=False),
    Column("folder", Text, nullable=False),
    Column("task", String(60), nullable=False),
    Column("model", Text, nullable=False),
    Column("runner", String(40), nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", String(60)),
    Column("message", Text, nullable=False),
    Column("submitted_at", String(40)),
    Column("started_at", String(40)),
    Column("ended_at", String(40)),
    Column("attempt", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("lost_steps", Integer, nullable=False),
    Column("events", Integer, nullable=False),
    UniqueConstraint("host", "folder"),
)
EVENTS: Final = Table(
    "events",
    METADATA,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),  # in the journal, from 0
    Column("at", String(40), nullable=False),
    Column("kind", String(40), nullable=False, index=True),
    Column("who", String(40), nullable=False),
    Column("fields", Text, nullable=False),  # JSON
)
PLANS: Final = Table(
    "plans",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("made_at", String(40), nullable=False, index=True),
    Column("document", Text, nullable=False),
)
SPEND: Final = Table(
    "spend",
    METADATA,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("session", Integer, primary_key=True),
    Column("started_at", String(40), nullable=False),
    Column("ended_at", String(40)),
    Column("seconds", Float, nullable=False),
    Column("usd_per_hour", Float),
    Column("usd", Float),
)


ANSWERS: Final = Table(
    "answers",
    METADATA,
    Column("caller", String(200), primary_key=True),
    Column("address", String(400), primary_key=True),
    Column("key_sha256", String(64), primary_key=True),  # a client may take anything as a key
    Column("body_sha256", String(64), nullable=False),
    Column("begun_at", String(40), nullable=False, index=True),
    Column("document", Text),  # null: begun, and not known how it ended
)


AUDIT_HEADS: Final = Table(
    "audit_heads",
    METADATA,
    Column("first_hash", String(64), primary_key=True),  # of an audit's first line: which audit it is
    Column("number", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at", String(40), nullable=False),
)


def _measurements(name: FactTable) -> Table:
    """The columns of a facts file as text, cell by cell, so that an export is what was imported."""
    optional = KEPT_COLUMNS[name][len(FACT_COLUMNS[name]) :]
    return Table(
        f"{name}_measurements",
        METADATA,
        Column("number", Integer, primary_key=True),
        Column("sha256", String(64), nullable=False, unique=True),  # of the cells: the same row is kept once
        Column("run", String(200), index=True),
        Column("device", Text, nullable=False),
        Column("versions", Text, nullable=False),
        Column("recorded_at", String(40), nullable=False),
        *(Column(column, Text, nullable=False) for column in FACT_COLUMNS[name]),
        *(Column(column, Text, nullable=False, server_default="") for column in optional),
    )


MEASUREMENTS: Final[dict[FactTable, Table]] = {name: _measurements(name) for name in FACT_COLUMNS}
