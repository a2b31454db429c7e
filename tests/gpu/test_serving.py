"""Models on a GPU answer as on a processor: the encoder server's runtime, and a finished run's model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]


@pytest.mark.parametrize(("weights", "apart"), [("fp32", 1e-4), ("fp16", 1e-2), ("bf16", 5e-2)])
def test_an_encoder_answers_alike(
    cuda: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str, apart: float
) -> None:
    """Logits of PyTorch on the GPU beside those of 32 bits on the processor, from several threads too."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from tonnage.serving.encoder.folders import read_folder
    from tonnage.serving.encoder.runtimes import TorchModel
    from tonnage.testing.tiny_encoders import write_tiny_encoder

    folder = read_folder(write_tiny_encoder(tmp_path / "model", "classification", hidden=64, heads=4))
    ids = np.random.default_rng(0).integers(4, 13, (8, 16), dtype=np.int64)
    given = ids, np.ones_like(ids), np.zeros_like(ids)
    on_gpu = TorchModel(folder, threads=1, weights=weights)
    assert on_gpu.device == cuda
    with monkeypatch.context() as hidden:
        hidden.setattr(torch.cuda, "is_available", lambda: False)
        plain = TorchModel(folder, threads=1, weights="fp32")
    assert plain.device == "cpu"
    expected = plain.outputs(*given)
    with ThreadPoolExecutor(4) as several:
        for found in several.map(lambda _: on_gpu.outputs(*given), range(16)):
            assert np.abs(found - expected).max() <= apart * max(1.0, np.abs(expected).max())
