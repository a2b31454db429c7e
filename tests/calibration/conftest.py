"""Training rows as a table of measured facts states them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tonnage.calibration.rows import TrainingRow
from tonnage.catalog import Catalog, load_catalog

# 64 x A100 40 GB, MPT-1b shape at 2,048 tokens: mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md,
# whose neighbours (16 and 128 GPUs) print 54 to 56 % MFU.
BASE = TrainingRow(
    id="r1", config_id="c1", source="a table", model="MPT-1b", params=1_315_950_592.0, n_layers=24, d_model=2048,
    n_heads=16, n_kv_heads=16, d_ff=8192, vocab=50368, seq_len=2048, gpu="A100-80GB-SXM", n_gpus=8, gpus_per_node=8,
    micro_batch_per_gpu=14, grad_accum=4, global_batch=448, precision="bf16", method="full",
    optimizer="decoupled_adamw", sharding="zero3/fsdp", activation_checkpointing="none", attention="flash", compile="",
    metric="tokens_per_s_per_gpu", value=20_000.0, mfu_reported=None, note="", mem_kind="", family="MPT-1b",
    source_group="x", quality="ok",
)  # fmt: skip


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def row() -> Callable[..., TrainingRow]:
    """`row(gpu="T4", ...)`: the base row with changes."""
    return lambda **changes: replace(BASE, **changes)
