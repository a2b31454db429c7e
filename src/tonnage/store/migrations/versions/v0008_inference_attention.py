"""How the attention of an inference row runs, beside its measurement."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0008"
down_revision: str | None = "0007"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    op.add_column("inference_measurements", Column("attention", Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("inference_measurements", "attention")
