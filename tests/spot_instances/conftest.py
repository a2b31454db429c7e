"""Made-up traces whose law is known, and a hazard model to go with them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tonnage.spot_instances import Direction, HazardModel, SpotTrace, packaged_model, parse_trace

from ..planning.conftest import catalog, make_serve, make_train  # noqa: F401  (fixtures)

TYPICAL = Direction(per_h=(1.2, 1.1, 0.7, 0.4, 0.25, 0.18, 0.14, 0.09), log_mean=-0.2, log_spread=0.6)
AWAY = Direction(per_h=(2.0, 1.7, 1.1, 0.7, 0.4, 0.3, 0.2, 0.1), log_mean=0.0, log_spread=0.4)


def document(data: list[Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"gap_seconds": 120} | metadata, "data": data}


def trace(data: list[Any], name: str = "made-up", **metadata: Any) -> SpotTrace:
    return parse_trace(json.dumps(document(data, **metadata)), name=name)


def renewal_data(seed: int, ticks: int, *, up_h: float = 2.0, down_h: float = 1.0, shape: float = 0.65) -> list[int]:
    """0 and 1 by turns, lengths Weibull with a falling hazard."""
    random = np.random.default_rng(seed)
    data: list[int] = []
    state = 1
    while len(data) < ticks:
        scale = up_h if state else down_h
        data += [state] * max(1, round(30 * scale * float(random.weibull(shape))))
        state = 1 - state
    return data[:ticks]


@pytest.fixture
def model() -> HazardModel:
    return HazardModel(up=TYPICAL, down=AWAY, zones=8, runs=800, source="made up for tests")


@pytest.fixture
def packaged() -> HazardModel:
    return packaged_model()
