"""Answers of the REST API, by caller, address and Idempotency-Key."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, PrimaryKeyConstraint, String, Text

revision = "0006"
down_revision: str | None = "0005"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    op.create_table(
        "answers",
        Column("caller", String(200), nullable=False),
        Column("address", String(400), nullable=False),
        Column("key_sha256", String(64), nullable=False),
        Column("body_sha256", String(64), nullable=False),
        Column("begun_at", String(40), nullable=False),
        Column("document", Text),
        PrimaryKeyConstraint("caller", "address", "key_sha256", name="pk_answers"),
    )
    op.create_index("ix_answers_begun_at", "answers", ["begun_at"])


def downgrade() -> None:
    op.drop_table("answers")
