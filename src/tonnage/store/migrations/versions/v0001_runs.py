"""Runs, their events, and measurements."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, ForeignKeyConstraint, Integer, PrimaryKeyConstraint, String, Text, UniqueConstraint

revision = "0001"
down_revision: str | None = None
branch_labels: None = None
depends_on: None = None

_TRAINING = (
    "id", "config_id", "source", "model", "params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab",
    "seq_len", "gpu", "n_gpus", "gpus_per_node", "micro_batch_per_gpu", "grad_accum", "global_batch", "precision",
    "method", "optimizer", "sharding", "activation_checkpointing", "attention", "compile", "metric", "value",
    "mfu_reported", "note", "published_value", "published_unit", "derived", "mem_kind", "train_tokens", "family",
    "source_group", "shape_source", "quality",
)  # fmt: skip
_INFERENCE = (
    "id", "config_id", "source", "model", "params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab",
    "kind", "gpu", "n_gpus", "tp", "engine", "precision", "weights_quant", "batch_size", "concurrency", "input_len",
    "output_len", "metric", "value", "note",
)  # fmt: skip


def upgrade() -> None:
    _create_runs()
    _create_events()
    for table, columns in (("training_measurements", _TRAINING), ("inference_measurements", _INFERENCE)):
        _create_measurements(table, columns)


def downgrade() -> None:
    for table in ("inference_measurements", "training_measurements", "events", "runs"):
        op.drop_table(table)


def _create_runs() -> None:
    op.create_table(
        "runs",
        Column("id", Integer, nullable=False),
        Column("name", String(200), nullable=False),
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
        PrimaryKeyConstraint("id", name="pk_runs"),
        UniqueConstraint("host", "folder", name="uq_runs_host"),
    )
    op.create_index("ix_runs_name", "runs", ["name"])


def _create_events() -> None:
    op.create_table(
        "events",
        Column("run_id", Integer, nullable=False),
        Column("position", Integer, nullable=False),
        Column("at", String(40), nullable=False),
        Column("kind", String(40), nullable=False),
        Column("who", String(40), nullable=False),
        Column("fields", Text, nullable=False),
        PrimaryKeyConstraint("run_id", "position", name="pk_events"),
        ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id", ondelete="CASCADE"),
    )
    op.create_index("ix_events_kind", "events", ["kind"])


def _create_measurements(table: str, columns: tuple[str, ...]) -> None:
    op.create_table(
        table,
        Column("number", Integer, nullable=False),
        Column("sha256", String(64), nullable=False),
        Column("run", String(200)),
        Column("device", Text, nullable=False),
        Column("versions", Text, nullable=False),
        Column("recorded_at", String(40), nullable=False),
        *(Column(column, Text, nullable=False) for column in columns),
        PrimaryKeyConstraint("number", name=f"pk_{table}"),
        UniqueConstraint("sha256", name=f"uq_{table}_sha256"),
    )
    op.create_index(f"ix_{table}_run", table, ["run"])
