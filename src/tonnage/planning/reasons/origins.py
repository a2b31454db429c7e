"""How a figure of what a job needs was found: a closed set of kinds."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.reason import Reason
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FromShape(Reason):
    """Counted in the shape of the model."""

    kind: ClassVar[str] = "model shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromMethod(Reason):
    """What the method of training changes."""

    kind: ClassVar[str] = "method"
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJob(Reason):
    """Forward and backward of the whole job, at the mean length."""

    kind: ClassVar[str] = "whole job"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeState(Reason):
    """Weights, gradients and the optimizer's state, before any sharding."""

    kind: ClassVar[str] = "whole state"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptForBackward(Reason):
    """Activations that one sequence keeps for the backward pass."""

    kind: ClassVar[str] = "kept for backward"
    tokens: float
    recompute: Literal["none", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAs(Reason):
    """In a format of storage."""

    kind: ClassVar[str] = "format"
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OneForward(Reason):
    """One forward pass over so many tokens. None: over an image."""

    kind: ClassVar[str] = "one forward"
    tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllLayers(Reason):
    """Keys and values of all layers."""

    kind: ClassVar[str] = "all layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLongest(Reason):
    """At the longest request."""

    kind: ClassVar[str] = "longest"
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCells(Reason):
    """Rows times features."""

    kind: ClassVar[str] = "table cells"


Origin = (
    FromShape
    | FromMethod
    | WholeJob
    | WholeState
    | KeptForBackward
    | StoredAs
    | OneForward
    | AllLayers
    | AtLongest
    | TableCells
)
