"""The position of a run between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.recipes.checkpoints.reading import Checkpoint
from tonnage.recipes.order import DataOrder
from tonnage.recipes.team import ProcessTeam

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
