"""Rows of a request: checked, made numbers, computed together with those of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import did_you_mean, nearest
from tonnage.features.tables import Feature, TableCoder
from tonnage.serving.encoder.batching import Compute
from tonnage.serving.encoder.caching import Kept
from tonnage.serving.encoder.faults import MissingColumn, MissingValue, UnknownColumn, WrongShape, WrongType
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Task

SHOWN: Final = 20  # columns in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class TableModel:
    """`predict`: (rows, columns) of `dtype` to (rows,) values or (rows, classes) probabilities. `bridges_gaps`: a
    missing value is something that it can go on from, also where it met none in training."""

    coder: TableCoder
    predict: Callable[[NDArray[Any]], NDArray[Any]]
    runtime: str
    dtype: str = "float32"
    bridges_gaps: bool = True

    @property
    def task(self) -> Task:
        return "tabular-regression" if self.coder.objective == "regression" else "tabular-classification"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.coder.classes


@dataclass(frozen=True, slots=True)
class NumberRows:
    """The rows of one request as numbers."""

    values: NDArray[Any]  # (rows, columns)

    @property
    def length(self) -> int:
        return 1

    @property
    def count(self) -> int:
        return len(self.values)


def computing(model: TableModel) -> Compute[Any]:
    """The rows of several requests at once; of each, a list of values or of probabilities of all classes."""

    def compute(items: Sequence[NumberRows]) -> Sequence[Any]:
        values = items[0].values if len(items) == 1 else np.concatenate([one.values for one in items])
        found, done, answers = model.predict(values).tolist(), 0, []
        for one in items:
            answers.append(found[done : done + one.count])
            done += one.count
        return answers

    return compute


class TableReader:
    """Requests to rows of numbers; each fault names row and column."""

    def __init__(self, model: TableModel) -> None:
        self.model, self.names = model, tuple(feature.name for feature in model.coder.features)
        self._known = frozenset(self.names)

    async def read_all(self, given: Sequence[Any] | NDArray[Any], *, truncate: bool) -> Sequence[NumberRows]:  # noqa: ARG002
        """All rows as one item: they are computed together."""
        return [NumberRows(given if isinstance(given, np.ndarray) else np.stack(given))]

    def key_parts(self, one: NDArray[Any]) -> Sequence[bytes]:
        """The row's numbers."""
        return [one.tobytes()]

    def kept(self, item: NumberRows, answer: Sequence[Any]) -> Sequence[Kept]:  # noqa: ARG002
        """Rows have no tokens."""
        return [(one, 0) for one in answer]

    def rows(self, given: Sequence[Any]) -> NDArray[Any]:
        """Objects with a value for each column (and the label, which is not read), or lists in the columns' order."""
        if given and isinstance(given[0], list):
            return self.columns(dict(zip(self.names, self._listed(given), strict=True)), len(given))
        for at, row in enumerate(given):
            if not isinstance(row, dict):
                raise WrongType(f"rows[{at}] is no object of columns, as rows[0] is")
            if row.keys() != self._known:
                self._check_names(row, f"rows[{at}]")
        return self.columns({name: [row[name] for row in given] for name in self.names}, len(given))

    def _listed(self, given: Sequence[Any]) -> Iterator[list[Any]]:
        for at, row in enumerate(given):
            if not isinstance(row, list):
                raise WrongType(f"rows[{at}] is no list of values, as rows[0] is")
            if len(row) != len(self.names):
                raise WrongShape(f"rows[{at}] has {len(row)} values, the model reads {len(self.names)} columns")
        return ([row[at] for row in given] for at in range(len(self.names)))

    def _check_names(self, found: Mapping[str, Any], where: str) -> None:
        unknown = sorted(found.keys() - self._known - {self.model.coder.label})
        if unknown:
            close = did_you_mean(nearest(unknown[0], self.names), f"it reads {_listing(self.names)}")
            raise UnknownColumn(f"{where}: the model reads no column '{unknown[0]}'; {close}")
        missing = [name for name in self.names if name not in found]
        if missing:
            raise MissingColumn(f"{where}: {_listing(missing)} not there; a value that is not known is null")

    def columns(self, columns: Mapping[str, Sequence[Any]], count: int) -> NDArray[Any]:
        """(rows, columns) of numbers, NaN where nothing is. Faults name what cannot be read."""
        self._check_names(columns, "the request")
        codes = self.model.coder.codes(columns, dtype=self.model.dtype)
        if count and not np.isfinite(codes).all():
            self._check_gaps(columns, codes)
        return codes

    def matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """(rows, columns) that are numbers already, in the columns' order."""
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise WrongShape(f"the tensor has the shape {list(values.shape)}, the model reads [n, {len(self.names)}]")
        of_texts = [feature.name for feature in self.model.coder.features if feature.categories is not None]
        if of_texts and values.dtype != object:
            raise WrongType(f"{_listing(of_texts)} hold categories by their text: send a tensor for each column, "
                            "or one of BYTES")  # fmt: skip
        if values.dtype != object:
            with np.errstate(over="ignore"):
                codes = values.astype(self.model.dtype)
            if np.isfinite(codes).all():
                return codes
        return self.columns(dict(zip(self.names, values.T.tolist(), strict=True)), len(values))

    def _check_gaps(self, columns: Mapping[str, Sequence[Any]], codes: NDArray[Any]) -> None:
        """Where no number came out: nothing was there, which some models take, or what is no value of the column."""
        for row, column in np.argwhere(~np.isfinite(codes)).tolist():
            feature = self.model.coder.features[column]
            value = columns[feature.name][row]
            where = f"rows[{row}], '{feature.name}'"
            gap = value is None or (isinstance(value, float) and math.isnan(value))
            if not gap:
                _check_value(feature, value, where)
            if not self.model.bridges_gaps and feature.gaps is False:
                found = "nothing" if gap else f"{str(value)[:60]!r}, which no row of its training had,"
                raise MissingValue(f"{where}: {found} is there; the model met no missing value in this column")


def _check_value(feature: Feature, value: Any, where: str) -> None:
    """WrongType for what can stand for no value; an unknown category counts as missing."""
    if feature.categories is None:
        raise WrongType(f"{where}: {str(value)[:60]!r} is not a finite number")
    if isinstance(value, (list, dict)):
        raise WrongType(f"{where}: {str(value)[:60]!r} is not a category; a text is expected")


def _listing(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
