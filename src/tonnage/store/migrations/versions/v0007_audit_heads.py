"""How far each audit has come, apart from its file."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Integer, String

revision = "0007"
down_revision: str | None = "0006"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    op.create_table(
        "audit_heads",
        Column("first_hash", String(64), primary_key=True),
        Column("number", Integer, nullable=False),
        Column("hash", String(64), nullable=False),
        Column("at", String(40), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("audit_heads")
