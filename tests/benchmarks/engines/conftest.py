"""Engines that cost no seconds to import, for tests of what the bench does around an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.benchmarks.engines import worker_process

LIGHT = Path(__file__).parent / "light"


@pytest.fixture
def light_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers started from now on take `scikit-learn` and `xgboost` from `light/`, all else from the product: real
    processes, whose engine is a linear score in numpy."""
    monkeypatch.setenv("TONNAGE_TEST_ENGINE_WORKERS", str(worker_process.APART / "engine_workers"))
    monkeypatch.setattr(worker_process, "APART", LIGHT)
