"""What the program of an inference measurement did, beside it: compiled, autocast, threads that decode."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0004"
down_revision: str | None = "0003"
branch_labels: None = None
depends_on: None = None

COLUMNS = ("compiled", "autocast", "decoding_threads")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("inference_measurements", Column(name, Text, nullable=False, server_default=""))


def downgrade() -> None:
    for name in reversed(COLUMNS):
        op.drop_column("inference_measurements", name)
