"""Tables to learn from: which columns are numbers, which are categories, what the label is, and how well the table is
learned, beside simple models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import DataError
from tonnage.features.tables import Feature, TableCoder, as_number
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation
from tonnage.recipes.tasks.labels import find_labels, number_trained
from tonnage.recipes.tasks.metrics import area_under_curve, classification_metrics, regression_metrics
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
FEW_CLASSES: Final = 20  # whole numbers with at most so many values are classes, where nothing else is said
MOST_CATEGORIES: Final = 1000  # of a column, the commonest; others count as missing
MOST_ROWS: Final = 200_000  # a linear model learns from


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSplit:
    """One split: its rows and their labels, class numbers or values."""

    rows: DatasetRows
    labels: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningTable:
    """A table ready to be learned from."""

    coder: TableCoder
    train: TableSplit
    validation: TableSplit
    test: TableSplit | None

    @property
    def judged(self) -> TableSplit:
        """The split that figures are taken from."""
        return self.validation if self.test is None else self.test


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return _splits(spec, spec.column("label") or "label")


def known_part(coder: TableCoder, rows: DatasetRows) -> TableSplit:
    """Rows for a model that has learned already: its features must be there, its labels are the only ones."""
    import numpy as np

    for feature in coder.features:
        rows.column(feature.name, "feature")
    classes = coder.objective == "classification"
    labels: Sequence[float] = (
        number_trained(coder.classes, rows, coder.label) if classes else _numbers(rows, coder.label)
    )
    return TableSplit(rows=rows, labels=np.asarray(labels, dtype=np.float64))


def load_table(spec: RunSpec) -> LearningTable:
    """Read and check the rows of a run. Role: `label`; the features are those named, or all other columns."""
    label = spec.column("label") or "label"
    splits = _splits(spec, label)
    objective = _objective(splits, label, spec.tabular.objective)
    names = spec.data.features or _others(splits.train, label, spec.data.group)
    features = tuple(_feature(name, splits.train.column(name, "feature")) for name in names)
    labels: list[Sequence[float]]
    if objective == "classification":
        classes = find_labels(splits, label)
        coder = TableCoder(features=features, label=label, objective=objective, classes=classes.names)
        labels = [classes.number(rows, label) for rows in splits]
    else:
        coder = TableCoder(features=features, label=label, objective=objective)
        labels = [_numbers(rows, label) for rows in splits]
        _check_differs(labels[0], splits.train)
    for rows in splits:
        for name in names:
            rows.column(name, "feature")
    import numpy as np

    parts = [
        TableSplit(rows=rows, labels=np.asarray(values, dtype=np.float64))
        for rows, values in zip(splits, labels, strict=True)
    ]
    return LearningTable(coder=coder, train=parts[0], validation=parts[1], test=parts[2] if len(parts) > 2 else None)


def judge(coder: TableCoder, labels: NDArray[Any], output: NDArray[Any]) -> Evaluation:
    """Figures of predictions: values, or a probability (or logit) for each class of each row."""
    if coder.objective == "regression":
        return Evaluation(metrics=regression_metrics(labels.tolist(), output.tolist()), samples=len(labels))
    true = labels.astype(int).tolist()
    found = dict(classification_metrics(true, output.argmax(axis=1).tolist()))
    if output.shape[1] == 2:
        area = area_under_curve(true, (output[:, 1] - output[:, 0]).tolist())
        found |= {} if area is None else {"auc": area}
    return Evaluation(metrics=found, samples=len(true))


def table_baseline(table: LearningTable) -> Evaluation:
    """Two simple models on the same rows: the mean or the commonest class, and a linear model."""
    train, judged = table.train, table.judged
    simple = _constant(table.coder, train, judged)
    linear = judge(table.coder, judged.labels, _linear(table.coder, train, judged))
    name = "mean" if table.coder.objective == "regression" else "majority"
    figures = {f"{name}_{key}": value for key, value in simple.metrics.items()}
    return Evaluation(
        metrics={**figures, **{f"linear_{key}": value for key, value in linear.metrics.items()}}, samples=simple.samples
    )


def _splits(spec: RunSpec, label: str) -> Splits:
    roles = {name: name for name in spec.data.features} | dict(spec.data.columns)
    data = replace(spec.data, columns=tuple(roles.items()))

    def are_classes(rows: DatasetRows) -> bool:
        return _objective((rows,), label, spec.tabular.objective) == "classification"

    read = tuple(roles) if spec.data.features else None
    return load_splits(data, roles=read, same=(), stratify="label", are_classes=are_classes)


def _others(rows: DatasetRows, label: str, group: str | None) -> tuple[str, ...]:
    found = tuple(name for name in rows.columns if name not in (label, group))
    if not found:
        raise DataError(f"{rows.name} has no column but the label", hint="a table needs columns to learn from")
    return found


def _objective(
    parts: Iterable[DatasetRows], label: str, asked: Literal["auto", "regression", "classification"]
) -> Literal["regression", "classification"]:
    """What the labels of all splits together are; DataError for one that can be neither."""
    values = set()
    for rows in parts:
        for position, value in enumerate(rows.column(label, "label")):
            if isinstance(value, (list, dict)):
                hint = "a number, a text or true/false is expected"
                raise DataError(f"{rows.where(position)}: '{label}' holds {str(value)[:60]!r}", hint=hint)
            values.add(value)
    if asked != "auto":
        return asked
    numbers = [as_number(value) for value in values]
    if any(isinstance(value, bool) for value in values) or None in numbers:
        return "classification"
    whole = all(number is not None and number.is_integer() for number in numbers)
    fractions = any(isinstance(value, float) for value in values)
    return "classification" if whole and not fractions and len(values) <= FEW_CLASSES else "regression"


def _numbers(rows: DatasetRows, label: str) -> list[float]:
    found = []
    for position, value in enumerate(rows.column(label, "label")):
        number = as_number(value)
        if number is None:
            hint = "write a number, remove the row, or set `objective: classification`"
            raise DataError(f"{rows.where(position)}: '{label}' holds {value!r}, no number", hint=hint)
        found.append(number)
    return found


def _check_differs(values: Sequence[float], rows: DatasetRows) -> None:
    if min(values) == max(values):
        hint = "name another column in `run.data.columns`"
        raise DataError(f"every row of {rows.name} has the label {values[0]:g}: there is nothing to learn", hint=hint)


def _feature(name: str, values: Sequence[Any]) -> Feature:
    import numpy as np

    present = [value for value in values if value is not None]
    gaps = len(present) < len(values)
    numbers = [as_number(value) for value in present]
    if all(number is not None or _is_nan(value) for number, value in zip(numbers, present, strict=True)):
        known = np.asarray([number for number in numbers if number is not None] or [0.0], dtype=np.float64)
        gaps = gaps or None in numbers
        return Feature(name=name, mean=float(known.mean()), spread=float(known.std()) or 1.0, gaps=gaps)
    counted = Counter(str(value) for value in present)
    common = [value for value, _ in counted.most_common(MOST_CATEGORIES)]
    return Feature(name=name, categories=tuple(sorted(common)), gaps=gaps or len(counted) > len(common))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _constant(coder: TableCoder, train: TableSplit, judged: TableSplit) -> Evaluation:
    import numpy as np

    if coder.objective == "regression":
        return judge(coder, judged.labels, np.full(len(judged.labels), train.labels.mean()))
    commonest = Counter(train.labels.tolist()).most_common(1)[0][0]
    output = np.zeros((len(judged.labels), len(coder.classes)))
    output[:, int(commonest)] = 1.0
    return judge(coder, judged.labels, output)


def _linear(coder: TableCoder, train: TableSplit, judged: TableSplit) -> NDArray[Any]:
    from sklearn.linear_model import LogisticRegression, Ridge

    rows, labels = coder.scaled(train.rows.columns)[:MOST_ROWS], train.labels[:MOST_ROWS]
    model = Ridge() if coder.objective == "regression" else LogisticRegression(max_iter=1000)
    model.fit(rows, labels)
    unseen = coder.scaled(judged.rows.columns)
    if coder.objective == "regression":
        return _array(model.predict(unseen))
    import numpy as np

    output = np.zeros((len(unseen), len(coder.classes)))  # a class that is not among the first rows keeps 0
    output[:, model.classes_.astype(int)] = model.predict_proba(unseen)
    return output


def _array(values: Any) -> NDArray[Any]:
    import numpy as np

    return np.asarray(values)
