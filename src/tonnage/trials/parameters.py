"""One hyper-parameter of a search: choices, or a range."""

from __future__ import annotations

from typing import Any, Final

from tonnage.values import dataclass
from tonnage.workload.file.sweep_fields import ParameterFields

LARGEST_GRID: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParameter:
    """One key and what it may be: `choices`, or a range."""

    path: str
    choices: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    whole: bool = False

    def ends(self) -> tuple[Any, ...]:
        """The values that show whether all can be used: each choice, the two ends of a range."""
        return self.choices if self.choices is not None else (self.low, self.high)

    def grid(self) -> tuple[Any, ...]:
        """Every single value; of a range those `step` apart."""
        if self.choices is not None:
            return self.choices
        assert self.step is not None
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(self.low + number * self.step for number in range(min(count, LARGEST_GRID + 1)))


def read_parameter(path: str, fields: ParameterFields, *, whole: bool) -> TrialParameter:
    """A parameter from its entry in a file, in which `sweep_checks.values_problems` found nothing."""
    if fields.choices is not None:
        return TrialParameter(path=path, choices=tuple(fields.choices))
    assert fields.low is not None
    assert fields.high is not None
    return TrialParameter(
        path=path, low=fields.low, high=fields.high, log=fields.log, step=fields.step, whole=whole,
    )  # fmt: skip
