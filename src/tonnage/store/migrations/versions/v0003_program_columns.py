"""What the program of a training run did, beside each of its measurements."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0003"
down_revision: str | None = "0002"
branch_labels: None = None
depends_on: None = None

COLUMNS = (
    "program", "program_version", "kernels", "state", "loss", "checkpoint_kind", "channels_last", "sequence_parallel",
    "optimizer_fused", "optimizer_in_backward", "offload", "adapter_targets", "tables_apart", "objective",
    "generator", "flop_counted", "cached_tokens", "target_tokens", "batch_tokens", "image_side",
    "network_gbit_per_s_per_gpu", "network_gbit_per_s_per_node",
)  # fmt: skip


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("training_measurements", Column(name, Text, nullable=False, server_default=""))


def downgrade() -> None:
    for name in reversed(COLUMNS):
        op.drop_column("training_measurements", name)
