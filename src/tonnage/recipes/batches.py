"""The micro-batches of a step, put together on the host one step ahead of the device."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tonnage.recipes.position import DataOrder, cut
from tonnage.recipes.task import Prepared
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor

IGNORED: Final = -100  # the label that losses of torch and transformers leave out


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatches:
    """This process's share of one optimizer step. The weight of a batch is how many labels its mean loss is over."""

    micro: tuple[dict[str, Tensor], ...]
    weights: tuple[float, ...]
    samples: int
    tokens: int  # that are no padding

    @property
    def weight(self) -> float:
        return sum(self.weights)


def label_weight(batch: Mapping[str, Tensor], *, shifted: bool) -> float:
    """Labels that the mean loss of a batch is taken over.

    Class numbers count where they are not the ignored one; a causal language model (`shifted`) predicts no first
    token; figures to regress, and batches whose labels have other names, count by sample.
    """
    labels = batch.get("labels")
    if labels is None or labels.is_floating_point():
        return float(len(next(iter(batch.values()))))
    return float((labels[..., 1:] if shifted else labels).ne(IGNORED).sum())


def longest_tokens(batch: Mapping[str, Tensor]) -> int:
    """Positions of each row with its padding; 0 for what is no text."""
    return batch["input_ids"].shape[1] if "input_ids" in batch else 0


class Feeder:
    """Puts together the share of one process, the next step's while the device works on this one's.

    `collate` and the items must not draw from the global generators of random numbers: they run beside the model.
    """

    def __init__(
        self, prepared: Prepared, order: DataOrder, *, rank: int, world: int, shifted: bool, pin: bool
    ) -> None:
        self._prepared, self._order = prepared, order
        self._rank, self._world = rank, world
        self._shifted, self._pin = shifted, pin
        self._ahead: tuple[tuple[int, int], Future[StepBatches]] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")

    def at(self, step: int, micro_batch: int, *, last: bool = False) -> StepBatches:
        """The share of a step; starts on the next one unless this is the last."""
        ready = self._ahead[1] if self._ahead and self._ahead[0] == (step, micro_batch) else None
        batches = ready.result() if ready else self._make(step, micro_batch)
        self._ahead = (
            None if last else ((step + 1, micro_batch), self._thread.submit(self._make, step + 1, micro_batch))
        )
        return batches

    def collate(self, positions: list[int]) -> dict[str, Tensor]:
        """One batch on the host."""
        batch = self._prepared.collate([self._prepared.train[position] for position in positions])
        return {name: value.pin_memory() for name, value in batch.items()} if self._pin else dict(batch)

    def _make(self, step: int, micro_batch: int) -> StepBatches:
        positions = self._order.share(step, rank=self._rank, world=self._world)
        micro = tuple(self.collate(piece) for piece in cut(positions, micro_batch))
        return StepBatches(
            micro=micro,
            weights=tuple(label_weight(batch, shifted=self._shifted) for batch in micro),
            samples=len(positions),
            tokens=sum(self._prepared.tokens(batch) for batch in micro),
        )

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
