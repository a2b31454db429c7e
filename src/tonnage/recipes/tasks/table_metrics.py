"""How well a table is learned, and how well simple models learn it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tonnage.features.tables import TableCoder
from tonnage.recipes.task import Evaluation
from tonnage.recipes.tasks.metrics import area_under_curve, classification_metrics, regression_metrics
from tonnage.recipes.tasks.tables import LearningTable, TableSplit

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_ROWS: Final = 200_000  # a linear model learns from


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
