"""The machine of a bench."""

from __future__ import annotations

from tonnage.catalog.hardware import Accelerator
from tonnage.side_by_side.spec import EngineSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine of a bench."""

    processor: str
    physical_cores: int
    logical_cores: int
    memory_bytes: float
    arm: bool
    gpus: tuple[Accelerator | None, ...] = ()  # in the order of the bus; None: one that the catalog does not know

    @property
    def threads_per_core(self) -> float:
        return self.logical_cores / max(self.physical_cores, 1)

    def gpu_of(self, engine: EngineSpec) -> Accelerator | None:
        """The card of an engine on one GPU named by its number."""
        if len(engine.devices) != 1 or not engine.devices[0].isdecimal():
            return None
        place = int(engine.devices[0])
        return self.gpus[place] if place < len(self.gpus) else None
