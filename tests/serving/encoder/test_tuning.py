"""Workers and batches found at the start: all workers unless fewer are quicker, larger batches where they gain."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from tonnage.serving.encoder.batching import Text
from tonnage.serving.encoder.tuning import tune


class Device:
    """Takes `fixed_s` a batch and `each_s` a text; `lock`: one batch at a time, as on one GPU."""

    def __init__(self, *, fixed_s: float, each_s: float, alone: bool) -> None:
        self.fixed_s, self.each_s = fixed_s, each_s
        self.lock = threading.Lock() if alone else None

    def __call__(self, texts: Sequence[Text]) -> None:
        if self.lock is None:
            time.sleep(self.fixed_s + self.each_s * len(texts))
            return
        with self.lock:
            time.sleep(self.fixed_s + self.each_s * len(texts))


@pytest.mark.parametrize(
    ("device", "batched"),
    [
        (Device(fixed_s=0.0, each_s=0.004, alone=False), False),  # cores: a batch gains nothing
        (Device(fixed_s=0.02, each_s=0.001, alone=True), True),  # a GPU: a pass costs the same for many
    ],
)
def test_batches_grow_only_where_they_gain(device: Device, batched: bool) -> None:
    """On cores one text at a time on all workers, on a device with a fixed cost as many as the promise bears."""
    found = tune(device, workers=[1, 2], most_tokens=64, p95_s=1.0, alone=False)
    assert found.workers == 2
    assert (found.batch_tokens >= 8 * 64) is batched


def test_a_batch_keeps_its_share_of_the_promise() -> None:
    """Half of it: larger ones are not even tried."""
    slow = Device(fixed_s=0.05, each_s=0.01, alone=True)
    found = tune(slow, workers=[1], most_tokens=64, p95_s=0.2, alone=False)
    assert max(one.texts for one in found.tried) <= 4


def test_texts_that_must_be_alone_are() -> None:
    """Where an answer would depend on its batch-mates."""
    found = tune(Device(fixed_s=0.01, each_s=0.0, alone=True), workers=[1], most_tokens=64, p95_s=None, alone=True)
    assert found.batch_tokens == 1
