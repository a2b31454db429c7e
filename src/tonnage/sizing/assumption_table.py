"""The one table of parameters: a dataclass's field holds the figure, and says its range, its source and who fits it.

Judgements of the physics (`Assumptions`), figures of an engine class (`Engine`) and those of the tabular formulas
(`TabularAssumptions`) are declared so; fits search between `low` and `high`, and `tonnage explain` prints them.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Final, Literal

from tonnage.values import dataclass

FittedBy = Literal["", "training time", "training memory", "inference"]

# Last words of a parameter's name -> its unit; the first that fits. The name alone says it.
_UNITS: Final = (
    ("_tflop_12nm", "J/TFLOP"), ("_tflop_7nm", "J/TFLOP"), ("_tflop_5nm", "J/TFLOP"), ("_cells_per_s", "cells/s"),
    ("_updates_per_s", "cells/s"), ("_flop_per_s", "FLOP/s"), ("_bytes_per_s", "B/s"), ("_gb_per_s", "GB/s"),
    ("_per_hour", "1/h"), ("_us_per_kernel", "us"), ("_us_per_tensor", "us"), ("_bytes_per_logit", "B"),
    ("_bytes_per_bin", "B"), ("_cycles_per_element", "cycles"), ("_us", "us"), ("_s", "s"), ("_gib", "GiB"),
    ("_bytes", "B"), ("_tokens", "tokens"), ("_nodes", "nodes"), ("_passes", "passes"), ("_to_half", "tiles"),
    ("_to_half_rate", "tiles"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One figure as the documentation prints it, and how a calibration treats it.

    `fitted_by`: the fit that sets it within `low` and `high` ("": a judgement). `start`: where a search begins that
    must not know any fitted value, a judgement made before the first fit.
    """

    name: str
    value: float
    low: float
    high: float
    source: str
    fitted_by: FittedBy = ""
    start: float | None = None

    @property
    def unit(self) -> str:
        """The unit that the name says; "1" for a share, a factor or a power.

        >>> Assumption(name="kernel_floor_us", value=4.0, low=1.0, high=12.0, source="measured").unit
        'us'
        """
        return next((unit for ending, unit in _UNITS if self.name.endswith(ending)), "1")

    def inside(self, value: float) -> float:
        """The value of the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)


def parameter(
    value: float, low: float, high: float, *, source: str, fitted_by: FittedBy = "", start: float | None = None
) -> Any:
    """A field with all there is to say about the figure it holds; `listed` reads it."""
    facts = {"low": low, "high": high, "source": source, "fitted_by": fitted_by, "start": start}
    return field(default=value, metadata=facts)


def listed(values: Any) -> tuple[Assumption, ...]:
    """Every figure of `values` that is declared as a `parameter`, with its range and source, in declaration order."""
    return tuple(
        Assumption(name=one.name, value=float(getattr(values, one.name)), **one.metadata)
        for one in fields(values)
        if one.metadata
    )
