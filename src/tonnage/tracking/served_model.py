"""A saved model as MLflow loads it. This file travels with the model, so it imports nothing of tonnage."""

from __future__ import annotations

import json
from typing import Any

_PIPELINES = {
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "causal-lm": "text-generation",
}


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> Any:
    """What `mlflow.pyfunc.load_model` calls."""
    task = (model_config or {}).get("task", "sequence-classification")
    if task not in _PIPELINES:
        raise NotImplementedError(f"a model of the task '{task}' is loaded by the program that trained it")
    return _Texts(path, task)


class _Texts:
    """A table of texts in, a table of answers out."""

    def __init__(self, path: str, task: str) -> None:
        from transformers import pipeline

        self._task = task
        name: Any = _PIPELINES[task]
        self._pipeline = pipeline(name, model=path, tokenizer=path)

    def predict(self, table: Any, params: dict[str, Any] | None = None) -> Any:
        """One row of answers for each row of the table."""
        import pandas as pd

        rows = table.to_dict("records")
        return pd.DataFrame([self._answer(row, params or {}) for row in rows], index=table.index)

    def _answer(self, row: dict[str, str], params: dict[str, Any]) -> dict[str, Any]:
        if self._task == "question-answering":
            found = self._pipeline(question=row["question"], context=row["context"])
            return {"answer": found["answer"], "score": float(found["score"])}
        if self._task == "causal-lm":
            return {"text": self._pipeline(row["prompt"], **params)[0]["generated_text"]}
        if self._task == "token-classification":
            found = self._pipeline(row["text"])
            return {"entities": json.dumps(found, default=float)}
        best = self._pipeline(row["text"], truncation=True)[0]
        return {"label": best["label"], "score": float(best["score"])}
