"""The cluster of the tests that need none of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places.kubernetes.pretended import CLAIMS

from tonnage.testing.kubernetes.server import FakeCluster, fake_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """No node has room: nothing is started."""
    with fake_cluster(tmp_path / "cluster") as found:
        found.controller.held = True
        found.lay(CLAIMS, "ml", {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]},
                                 "status": {"phase": "Bound"}})  # fmt: skip
        found.lay("/api/v1/nodes", "", {"metadata": {"name": "node-a", "labels": {"nvidia.com/gpu.product": "h100"}},
                  "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}}})  # fmt: skip
        yield found
