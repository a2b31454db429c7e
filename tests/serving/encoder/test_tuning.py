"""Workers and batches found at the start: all workers unless fewer are quicker, larger batches where they gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tonnage.serving.encoder import engine
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.engine import tune
from tonnage.sizing.encoder_queue import SIZES


class Device:
    """Takes `fixed_s` a batch and `each_s` a text; `shared`: one batch at a time, as on one GPU. No clock is asked."""

    def __init__(self, *, fixed_s: float, each_s: float, shared: bool) -> None:
        self.fixed_s, self.each_s, self.shared = fixed_s, each_s, shared
        self.batch_s = 0.0

    def __call__(self, texts: Sequence[EncodedText]) -> None:
        self.batch_s = self.fixed_s + self.each_s * len(texts)

    def rate(self, call: Callable[[], Any], workers: int) -> tuple[float, float]:
        """What would be measured: calls a second, and the seconds of one."""
        call()
        took_s = self.batch_s * (workers if self.shared else 1)
        return workers / took_s, took_s


def tuned(monkeypatch: pytest.MonkeyPatch, device: Device, **asked: Any) -> engine.Tuned:
    monkeypatch.setattr(engine, "_rate", device.rate)
    return tune(device, EncodedText(ids=[1] * 64), **{"workers": [1, 2], "sizes": SIZES, "p95_s": None, **asked})


@pytest.mark.parametrize(
    ("device", "batched"),
    [
        (Device(fixed_s=0.0, each_s=0.004, shared=False), False),  # cores: a batch gains nothing
        (Device(fixed_s=0.02, each_s=0.001, shared=True), True),  # a GPU: a pass costs the same for many
    ],
)
def test_batches_grow_only_where_they_gain(device: Device, batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On cores one text at a time on all workers, on a device with a fixed cost as many as the promise bears."""
    found = tuned(monkeypatch, device, p95_s=1.0)
    assert found.workers == 2
    assert (found.batch_tokens >= 8 * 64) is batched


def test_a_batch_keeps_its_share_of_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it: larger ones are not even tried."""
    found = tuned(monkeypatch, Device(fixed_s=0.05, each_s=0.01, shared=True), workers=[1], p95_s=0.2)
    assert max(one.items for one in found.tried) == 4


def test_texts_that_must_be_alone_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an answer would depend on its batch-mates."""
    found = tuned(monkeypatch, Device(fixed_s=0.01, each_s=0.0, shared=True), workers=[1], sizes=(1,))
    assert found.batch_tokens == 1


def test_what_is_measured_is_counted() -> None:
    """Calls of every worker, and the seconds of one; each is called at least once."""
    calls: list[int] = []
    rate, each_s = engine._rate(lambda: calls.append(1), 2)
    assert rate > 0
    assert each_s > 0
    assert len(calls) >= 2
