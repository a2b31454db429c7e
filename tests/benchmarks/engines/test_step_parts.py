"""What a step is made of, measured by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.benchmarks.engines.apart.engine_workers import step_parts
from tonnage.benchmarks.engines.apart.engine_workers.step_parts import TimedStep, looked_into

FETCH_S, COMPUTE_S, EXCHANGE_S = 1.0, 10.0, 5.0


class PretendedTraining:
    """Rows, a model of two ranks and its loss, each of which takes its time."""

    def __init__(self) -> None:
        self.now_s, self.silent, self.barriers = 0.0, False, 0

    def perf_counter(self) -> float:
        return self.now_s

    def __len__(self) -> int:
        return 10

    def __getitem__(self, one: list[int]) -> list[int]:
        self.now_s += FETCH_S / 2  # of the rows, and of their targets
        return one

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.silent = True
        yield
        self.silent = False

    def __call__(self, _: list[int]) -> Any:
        return SimpleNamespace(squeeze=lambda _: None)

    def backward(self) -> None:
        self.now_s += COMPUTE_S + (0.0 if self.silent else EXCHANGE_S)

    def barrier(self) -> None:
        self.barriers += 1


class PretendedRows(list[int]):
    """The order in which rows are taken."""

    def to(self, _: str) -> PretendedRows:
        return self

    def split(self, size: int) -> list[list[int]]:
        return [list(self[at : at + size]) for at in range(0, len(self), size)]


@pytest.mark.parametrize(("world", "exchange_s"), [(1, EXCHANGE_S), (2, 0.0)])
@pytest.mark.parametrize("own", [True, False])
def test_each_way_of_a_step_is_timed(world: int, exchange_s: float, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetching alone, the step without exchange, with it: of whole batches, ranks beginning together. A model that
    cannot leave its exchange out (FSDP) has a second one for it."""
    made, apart = PretendedTraining(), PretendedTraining()
    monkeypatch.setattr(step_parts, "time", made)
    monkeypatch.setattr(step_parts, "waited_s", lambda: made.now_s / 100)
    torch = SimpleNamespace(randperm=lambda count: PretendedRows(range(count)), distributed=made)
    apart.backward = lambda: setattr(made, "now_s", made.now_s + COMPUTE_S)  # type: ignore[method-assign]
    using: list[PretendedTraining] = []

    def zero_grad(of: PretendedTraining) -> Any:
        return SimpleNamespace(zero_grad=lambda **_: using.append(of), step=lambda: None)

    parts = TimedStep(
        model=made, rows=_rows(made), targets=made, loss_of=lambda *_: using[-1], optimizer=zero_grad(made), batch=4,
        apart=None if own else (apart, zero_grad(apart)),
    )  # fmt: skip
    found = looked_into(torch, parts, world, synchronize=False)
    alone_s = FETCH_S + COMPUTE_S + exchange_s
    assert found == {
        "input_s": FETCH_S, "alone_s": alone_s, "synced_s": FETCH_S + COMPUTE_S + EXCHANGE_S,
        "waited_s": pytest.approx(alone_s / 100), "rows": 4.0,
    }  # fmt: skip
    assert made.barriers == (3 * step_parts.ROUNDS if world > 1 else 0)
    assert (apart in using) is (world > 1 and not own)


def _rows(made: PretendedTraining) -> PretendedTraining:
    made.device = "cpu"  # type: ignore[attr-defined]
    return made
