"""Weights are looked at before they are saved, in little memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train`")

from tonnage.recipes import health  # noqa: E402
from tonnage.recipes.health import all_finite  # noqa: E402


@pytest.mark.parametrize("at", [0, 5, 11])
def test_one_value_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Wherever it stands: in the first part that is looked at, in the middle or in the last."""
    monkeypatch.setattr(health, "LOOKED_AT", 4)
    weights = torch.ones(3, 4)
    assert all_finite([weights, weights.t(), torch.arange(3)])
    weights.view(-1)[at] = float("inf")
    assert not all_finite([weights])
    assert not all_finite([weights.t()])


def test_a_full_device_is_looked_at_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that runs out while looking ends no run: the part is copied to the host and looked at there."""
    looked, isfinite = [], torch.isfinite

    def short(part: Any) -> Any:
        looked.append(part)
        if len(looked) % 2:
            raise torch.OutOfMemoryError("CUDA out of memory (injected by a test)")
        return isfinite(part)

    monkeypatch.setattr(torch, "isfinite", short)
    assert all_finite([torch.ones(8)])
    assert not all_finite([torch.tensor([float("nan")])])
    assert len(looked) == 4
