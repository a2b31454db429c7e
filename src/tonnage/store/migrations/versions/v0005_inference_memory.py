"""What a peak of memory counts, beside an inference measurement."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0005"
down_revision: str | None = "0004"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    op.add_column("inference_measurements", Column("mem_kind", Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("inference_measurements", "mem_kind")
