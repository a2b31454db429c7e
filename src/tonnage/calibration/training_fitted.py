"""What a fit of training knows, as values: parameters, the rows behind them, what is left over."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from tonnage.calibration.unseen import SEEN_STRUCTURES, UnseenFactors, structures_of, unseen
from tonnage.catalog.hardware import Accelerator
from tonnage.errors import InputError
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import GENERATIONS
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Quantiles of the log ratio, predicted over measured rate (or memory), of one group of rows."""

    group: str
    rows: int
    median_abs_log: float
    quantiles: tuple[tuple[float, float], ...]  # probability, log(predicted / measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFit:
    """Fitted parameters with the ranges they could take, the rows behind them, and what is left over."""

    values: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    rows: int
    residuals: tuple[Residuals, ...]
    generations: frozenset[str]
    precisions: frozenset[str]
    engines: frozenset[str]
    structures: frozenset[str] = SEEN_STRUCTURES  # of models, beyond dense ones

    def assumptions(self, base: Assumptions | None = None) -> Assumptions:
        """`base` (the shipped assumptions) with the fitted values. Raises InputError where a value belongs to other
        formulas than this version's."""
        unknown = sorted(set(self.values) - Assumptions.__dataclass_fields__.keys())
        if unknown:
            raise InputError(
                f"the calibration has a value for '{unknown[0]}', which this version does not have",
                hint="it was made by another version; make it again: `tonnage calibrate`",
            )
        return replace(base or Assumptions(), **dict(self.values))

    def unseen_factors(
        self,
        device: Accelerator,
        precision: str,
        program: str,
        *,
        shape: ModelShape | None = None,
        devices: Container[str] | None = None,
    ) -> UnseenFactors:
        """What of device, its generation, precision, program class and structure of the model (`shape`) no fitted row
        had. `devices`: those that rows name, where that is known; of a generation that no row had, there was no device
        either."""
        generation = generation_of(device)
        near = unseen(
            (device.name, device.name, devices if generation in self.generations else ()),
            (f"engine {program}" if program else "program not stated", program, self.engines),
        )
        foreign = unseen(
            (f"{generation} GPUs", generation, self.generations),
            (f"precision {precision}", precision, self.precisions),
            *((name, name, self.structures) for name in sorted(structures_of(shape) if shape else ())),
        )
        return UnseenFactors(near=near, foreign=foreign)


def generation_of(device: Accelerator) -> str:
    """Generation of a device, as the rates know it."""
    first = device.architecture.split(" ")[0]
    return first if first in GENERATIONS else device.architecture
