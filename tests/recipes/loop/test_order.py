"""Which samples a step learns from follows from seed and step alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.recipes.position import DataOrder, cut

ORDERS = st.builds(
    DataOrder, samples=st.integers(1, 60), global_batch=st.integers(1, 40), seed=st.integers(0, 2**31)
)  # fmt: skip


@given(order=ORDERS, epochs=st.integers(1, 3))
def test_each_epoch_sees_each_sample_once(order: DataOrder, epochs: int) -> None:
    """The stream of global batches is one permutation of the samples after another."""
    steps = order.steps(epochs=epochs, max_steps=None)
    stream = [position for step in range(steps) for position in order.batch(step)]
    assert len(stream) >= epochs * order.samples
    for epoch in range(epochs):
        seen = stream[epoch * order.samples : (epoch + 1) * order.samples]
        assert sorted(seen) == list(range(order.samples))


@given(order=ORDERS, step=st.integers(0, 50), world=st.integers(1, 8), micro_batch=st.integers(1, 9))
def test_processes_and_micro_batches_only_cut_a_batch_up(
    order: DataOrder, step: int, world: int, micro_batch: int
) -> None:
    """The shares of all processes, each cut into micro-batches, are the global batch in its order."""
    shares = [order.share(step, rank=rank, world=world) for rank in range(world)]
    pieces = [piece for share in shares for piece in cut(share, micro_batch)]
    assert [position for piece in pieces for position in piece] == order.batch(step)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(len(piece) <= micro_batch for piece in pieces)


def test_seed_and_epoch_change_the_order() -> None:
    """Two epochs, and two seeds, are shuffled differently."""
    first, second = (DataOrder(samples=50, global_batch=50, seed=seed) for seed in (0, 1))
    assert len({tuple(order.batch(step)) for order in (first, second) for step in (0, 1)}) == 4


@pytest.mark.parametrize(
    ("epochs", "max_steps", "steps"), [(1.0, None, 7), (2.0, None, 13), (0.01, None, 1), (3.0, 5, 5), (1.0, 50, 7)]
)
def test_steps_of_a_run(epochs: float, max_steps: int | None, steps: int) -> None:
    """100 samples in batches of 16: the last batch is filled up, `max_steps` ends earlier, never later."""
    assert DataOrder(samples=100, global_batch=16, seed=0).steps(epochs=epochs, max_steps=max_steps) == steps
