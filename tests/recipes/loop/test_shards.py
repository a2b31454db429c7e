"""The state of a shared-out model is written without any host holding the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port

pytest.importorskip("torch", reason="the extra `train`")
load_file = pytest.importorskip("safetensors.torch", reason="the extra `train`").load_file
pytestmark = [pytest.mark.slow]


def test_no_rank_holds_the_whole(tmp_path: Path) -> None:
    """24 layers of 4 MiB with AdamW's moments, 288 MiB in all, half of it each rank's own: a write lets no rank's peak
    rise by more than an eighth of the whole, no file holds more than a rank's part, and all reads back the same, to one
    process alone as well. What is written while training goes on is what was there when the write began. The finished
    model is saved with less than five of its 24 tensors in any rank's memory."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
        "--master-port", str(free_port()), str(Path(__file__).with_name("sharding.py")), str(tmp_path),
    ]  # fmt: skip
    returned = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors go back at once, as those of 32 MiB always do
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **returned}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    document = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    whole = sum(one["own"] for one in document)
    assert whole > 280 << 20
    assert all(one["same"] and one["same_beside"] for one in document)
    assert max(one["rise"] for one in document) < whole / 8, document
    sizes = [file.stat().st_size for file in (tmp_path / "shards").glob("*.distcp")]
    assert len(sizes) == 2
    assert max(sizes) < 0.55 * whole

    model = load_file(tmp_path / "model.safetensors")
    assert sum(one.nbytes for one in model.values()) == 96 << 20
    assert sum(float(one.double().square().sum()) for one in model.values()) == pytest.approx(
        sum(one["squares"] for one in document)
    )
    assert max(one["finishing_rise"] for one in document) < 20 << 20, document

    program = [sys.executable, str(Path(__file__).with_name("sharding.py")), str(tmp_path), "alone"]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    alone = json.loads((tmp_path / "alone.json").read_text())
    assert alone["squares"] == pytest.approx(sum(one["squares"] for one in document))
    assert (alone["steps"], alone["first_moment"]) == (1.0, pytest.approx(0.1))  # gradients of 1, beta of 0.9
