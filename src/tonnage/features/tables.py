"""Tables turned into numbers: which columns are numbers, which are categories, and what an output says."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.values import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.floating[Any]]

FILE: Final = "table.json"
_NUMBERS: Final = frozenset({int, float, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A column: a number with its mean and spread in train, or one of some categories.

    `gaps`: whether rows of train had nothing there, or a category too rare to be kept; None: not known.
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float = 0.0
    spread: float = 1.0
    gaps: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCoder:
    """How rows become numbers; learned from train, saved beside the model."""

    features: tuple[Feature, ...]
    label: str
    objective: Literal["regression", "classification"]
    classes: tuple[str, ...] = ()

    def codes(self, columns: Mapping[str, Sequence[Any]], *, dtype: str = "float32") -> Matrix:
        """(rows, features): the number, or the number of the category; NaN where there is none."""
        import numpy as np

        found = [feature_codes(feature, columns[feature.name]) for feature in self.features]
        with np.errstate(over="ignore"):  # beyond the largest number of 32 bits: infinite
            return np.asarray(found, dtype=dtype).T

    def scaled(self, columns: Mapping[str, Sequence[Any]]) -> Matrix:
        """For linear models and networks: numbers around 0, a missing one 0; a column of 0 and 1 for each category."""
        return self.scaled_codes(self.codes(columns))

    def scaled_codes(self, codes: Matrix) -> Matrix:
        """The same, of rows that are numbers already."""
        import numpy as np

        parts = []
        for at, feature in enumerate(self.features):
            values = codes[:, at]
            if feature.categories is None:
                parts.append(np.nan_to_num((values - feature.mean) / feature.spread)[:, None])
            else:
                parts.append((values[:, None] == np.arange(len(feature.categories))).astype(np.float32))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def answers(self, output: NDArray[Any]) -> list[dict[str, Any]]:
        """What a model says of each row: `value`, or the likeliest `label` and its `probability` (six digits).

        `output`: (rows,) values, or (rows, classes) probabilities.
        """
        if self.objective == "regression":
            return [{"value": float(value)} for value in output]
        best = output.argmax(axis=1)
        return [
            {"label": self.classes[number], "probability": round(float(output[at, number]), 6)}
            for at, number in enumerate(best)
        ]

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> TableCoder:
        """What `save` wrote."""
        values = json.loads((folder / FILE).read_text(encoding="utf-8"))
        features = tuple(
            Feature(**{**one, "categories": None if one["categories"] is None else tuple(one["categories"])})
            for one in values.pop("features")
        )
        return cls(**{**values, "classes": tuple(values["classes"])}, features=features)


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Probabilities of classes; (rows, classes) in and out."""
    import numpy as np

    shares: NDArray[Any] = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def as_number(value: Any) -> float | None:
    """The number a value is or spells; None for anything else.

    >>> as_number("1e3"), as_number(True), as_number("n/a"), as_number(float("nan"))
    (1000.0, 1.0, None, None)
    """
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def feature_codes(feature: Feature, values: Sequence[Any]) -> Sequence[float] | NDArray[Any]:
    """The values of a column as numbers; NaN for what is none, or none of the categories."""
    if feature.categories is not None:
        places = _places(feature.categories)
        return [math.nan if value is None else places.get(str(value), math.nan) for value in values]
    if set(map(type, values)) <= _NUMBERS:
        return _numbers(values)
    numbers = (as_number(value) for value in values)
    return [math.nan if number is None else number for number in numbers]


@lru_cache(maxsize=1024)
def _places(categories: tuple[str, ...]) -> Mapping[str, float]:
    """The number of each category; made once, since a served row asks for all of them."""
    return {category: float(at) for at, category in enumerate(categories)}


def _numbers(values: Sequence[Any]) -> Sequence[float] | NDArray[Any]:
    """Numbers and None, as `as_number` reads them, all at once."""
    import numpy as np

    try:
        found = np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number beyond any float
        return [math.nan if (number := as_number(value)) is None else number for value in values]
    found[np.isinf(found)] = math.nan
    return found
