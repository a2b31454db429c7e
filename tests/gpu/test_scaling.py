"""fp16 on a GPU: updates that overflow are left out until the scale fits, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.states import WorkerExit

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
TOO_MUCH = 2.0**40  # no gradient of 16 bits is a number under this scale


def test_an_overflow_is_no_end(
    cuda: str, work_on_tiny: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale is halved update by update until gradients fit; meanwhile neither weights nor schedule move; then the
    model learns. The checkpoint holds the scale that was found."""
    import torch

    from tonnage.recipes.checkpoints import newest_valid

    plain = torch.amp.GradScaler.__init__

    def scaled(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **{"init_scale": TOO_MUCH, **named})

    assert cuda
    monkeypatch.setattr(torch.amp.GradScaler, "__init__", scaled)
    folder = RunFolder(tmp_path / "one")
    assert work_on_tiny(folder, precision="fp16", max_steps=80, learning_rate=1e-3) == WorkerExit.DONE
    lines = [json.loads(line) for line in folder.metrics_file.read_text(encoding="utf-8").splitlines()]
    checkpoint, faults = newest_valid(folder.checkpoints)
    assert checkpoint is not None, faults
    scale = checkpoint.training()["scaler"]["scale"]
    assert 1.0 < scale < TOO_MUCH
    rates = [line["learning_rate"] for line in lines]
    assert rates[1] == rates[0]  # the first update was left out
    assert rates[-1] != rates[0]
    assert lines[-1]["loss"] < lines[0]["loss"]
