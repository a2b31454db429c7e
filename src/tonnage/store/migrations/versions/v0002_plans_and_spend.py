"""Plans as they were asked for, and what each session of a run cost."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, ForeignKeyConstraint, Integer, PrimaryKeyConstraint, String, Text

revision = "0002"
down_revision: str | None = "0001"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    op.create_table(
        "plans",
        Column("sha256", String(64), nullable=False),
        Column("name", Text, nullable=False),
        Column("made_at", String(40), nullable=False),
        Column("document", Text, nullable=False),
        PrimaryKeyConstraint("sha256", name="pk_plans"),
    )
    op.create_index("ix_plans_made_at", "plans", ["made_at"])
    op.create_table(
        "spend",
        Column("run_id", Integer, nullable=False),
        Column("session", Integer, nullable=False),
        Column("started_at", String(40), nullable=False),
        Column("ended_at", String(40)),
        Column("seconds", Float, nullable=False),
        Column("usd_per_hour", Float),
        Column("usd", Float),
        PrimaryKeyConstraint("run_id", "session", name="pk_spend"),
        ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_spend_run_id", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("spend")
    op.drop_table("plans")
