"""The position of a run between two steps, and which samples each optimizer step learns from: a function of seed and
step alone.

The samples form one endless stream: a permutation of all of them for epoch 0, then another for epoch 1, and so on. Step
k takes the k-th `global_batch` of that stream. Processes and micro-batches only cut this batch up, so that a run
continued on another number of devices, or with a smaller micro-batch, learns from the same samples in the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.recipes.checkpoints.reading import Checkpoint
from tonnage.recipes.team import ProcessTeam
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor


class Position:
    """Steps done, the micro-batch in use, and the loss since the last line of metrics."""

    def __init__(self, *, micro_batch: int) -> None:
        self.step = 0
        self.micro_batch = micro_batch
        self._loss_sum, self._loss_steps = 0.0, 0
        self._pending: list[Tensor] = []  # this process's shares of losses, still on the device

    def advance(self, loss: Tensor | None) -> None:
        """One more step done."""
        assert loss is not None
        self.step += 1
        self._pending.append(loss)

    def settle(self, team: ProcessTeam) -> None:
        """Read the pending losses; all processes together, since a loss is the sum of their shares."""
        if self._pending:
            import torch

            for loss in team.total(*torch.stack(self._pending).tolist()):
                self._loss_sum += loss
            self._loss_steps += len(self._pending)
            self._pending.clear()

    def take_mean_loss(self) -> float:
        """Mean over the settled steps since the last call."""
        mean = self._loss_sum / self._loss_steps
        self._loss_sum, self._loss_steps = 0.0, 0
        return mean

    def to_values(self, order: DataOrder) -> dict[str, Any]:
        """For a checkpoint, once settled."""
        return {
            "step": self.step,
            "samples": self.step * order.global_batch,  # consumed: the place in the stream of samples
            "micro_batch": self.micro_batch,
            "loss_sum": self._loss_sum,
            "loss_steps": self._loss_steps,
            "data_samples": order.samples,
            "global_batch": order.global_batch,
            "seed": order.seed,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Go to the place a checkpoint was written at."""
        self.step = int(values["step"])
        self.micro_batch = min(self.micro_batch, int(values["micro_batch"]))
        self._loss_sum, self._loss_steps = float(values["loss_sum"]), int(values["loss_steps"])
        self._pending.clear()


def check_same_data(checkpoint: Checkpoint, order: DataOrder) -> None:
    """InputError where the samples are not those the run began with: going on would learn some twice, some never."""
    held = (checkpoint.position["data_samples"], checkpoint.position["global_batch"], checkpoint.position["seed"])
    if held != (order.samples, order.global_batch, order.seed):
        raise InputError(
            f"{checkpoint.path} belongs to {held[0]} samples in batches of {held[1]} (seed {held[2]}), "
            f"the run now has {order.samples} in batches of {order.global_batch} (seed {order.seed})",
            hint="restore the data as it was, or start a new run under another name",
        )


@lru_cache(maxsize=2)
def permutation(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of one epoch. The same for the same arguments on every machine."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """The stream of samples, cut into global batches. Steps count from 0."""

    samples: int
    global_batch: int
    seed: int

    def batch(self, step: int) -> list[int]:
        """Positions of the samples of one step.

        >>> order = DataOrder(samples=5, global_batch=3, seed=0)
        >>> sorted(order.batch(0) + order.batch(1)[:2])
        [0, 1, 2, 3, 4]
        """
        first = step * self.global_batch
        positions = range(first, first + self.global_batch)
        return [int(permutation(self.samples, self.seed, at // self.samples)[at % self.samples]) for at in positions]

    def share(self, step: int, *, rank: int, world: int) -> list[int]:
        """What one of `world` processes takes of a step: a run of neighbours, sizes at most one apart."""
        batch = self.batch(step)
        return batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]

    def steps(self, *, epochs: float, max_steps: int | None) -> int:
        """Optimizer steps that see `epochs` passes; the last batch is filled from the epoch after."""
        steps = max(1, math.ceil(epochs * self.samples / self.global_batch))
        return min(steps, max_steps) if max_steps is not None else steps

    def epoch(self, step: int) -> float:
        """Passes over the data after `step` steps."""
        return step * self.global_batch / self.samples


def cut(positions: list[int], micro_batch: int) -> list[list[int]]:
    """Pieces of `micro_batch`, the last one shorter where it does not divide.

    >>> cut([4, 1, 3, 0, 2], 2)
    [[4, 1], [3, 0], [2]]
    """
    return [positions[first : first + micro_batch] for first in range(0, len(positions), micro_batch)]
