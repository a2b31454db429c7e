"""What a task gives the training loop: the loop knows no task, a task knows no loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Item = Mapping[str, Any]  # one sample, tokenised, not padded
Batch = "dict[str, Tensor]"  # what the model is called with: `model(**batch)` returns an object with `.loss`


class Items(Protocol):
    """Samples by position: a list, or a data set of the `datasets` library."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int) -> Item: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a model is on a split. Figures are fractions (0 to 1) or in the label's unit, by name."""

    metrics: Mapping[str, float]
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task made ready: the model on the host, its data, and what the loop must ask the task for."""

    model: Module  # on the host, in fp32 or quantised; adapters already on it
    train: Items
    validation: Items
    test: Items | None
    collate: Callable[[Sequence[Item]], dict[str, Tensor]]  # pads to the longest of these
    longest: Callable[[Items], Sequence[int]]  # positions, longest first: what the preflight step takes
    tokens: Callable[[Mapping[str, Tensor]], int]  # tokens of a batch that are no padding; 0 for tables
    evaluate: Callable[[Module, Items, int], Evaluation]  # model, split, batch size; on the model's device
    save: Callable[[Module, Path], None]  # the finished model and all it needs to be loaded again
    baseline: Callable[[], Evaluation] | None = None  # what the task reaches without the model, on the same split
    shape: Mapping[str, Any] | None = None  # params, n_layers, d_model...: in the columns of measured rows


class TaskProgram(Protocol):
    """One module of `recipes/tasks`: reads the data, builds the model."""

    def __call__(self, spec: RunSpec) -> Prepared: ...
