"""The processes of one run, and what they must agree on before each step.

Agreement goes over host memory (gloo), never through the device: no step waits for a device to be read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tonnage.values import dataclass

TIMEOUT: Final = timedelta(hours=12)  # rank 0 may evaluate for long while the others wait; a dead peer is seen at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTeam:
    """This process among all of them."""

    rank: int = 0
    world: int = 1
    group: Any = None  # torch.distributed.ProcessGroup on gloo; None: alone

    @property
    def main(self) -> bool:
        return self.rank == 0

    def total(self, *figures: float) -> tuple[float, ...]:
        """Each figure summed over all processes, the same on all of them."""
        if self.world == 1:
            return figures
        import torch

        values = torch.tensor(figures, dtype=torch.float64)
        torch.distributed.all_reduce(values, group=self.group)
        return tuple(values.tolist())

    def largest(self, figure: int) -> int:
        """The largest of the processes' figures, the same on all of them."""
        if self.world == 1:
            return figure
        import torch

        value = torch.tensor(figure, dtype=torch.int64)
        torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX, group=self.group)
        return int(value)

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, by rank, on all of them."""
        if self.world == 1:
            return [value]
        import torch

        values: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(values, value, group=self.group)
        return values

    def wait(self) -> None:
        """Until all processes are here."""
        self.total(0.0)


def gather_team(*, rank: int, world: int) -> ProcessTeam:
    """The team of an initialised process group, or this process alone."""
    if world == 1:
        return ProcessTeam()
    import torch

    return ProcessTeam(rank=rank, world=world, group=torch.distributed.new_group(backend="gloo", timeout=TIMEOUT))
