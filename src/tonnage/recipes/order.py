"""Which samples each optimizer step learns from: a function of seed and step alone.

The samples form one endless stream: a permutation of all of them for epoch 0, then another for epoch 1, and so on.
Step k takes the k-th `global_batch` of that stream. Processes and micro-batches only cut this batch up, so that a run
continued on another number of devices, or with a smaller micro-batch, learns from the same samples in the same steps.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tonnage.values import dataclass


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
