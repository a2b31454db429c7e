"""A saved model as MLflow loads it. This file travels with the model, so it imports nothing of tonnage."""

from __future__ import annotations

import json
from typing import Any

_PIPELINES = {
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "causal-lm": "text-generation",
    "image-classification": "image-classification",
}


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> Any:
    """What `mlflow.pyfunc.load_model` calls."""
    task = (model_config or {}).get("task", "sequence-classification")
    if task == "sequence-to-sequence":
        return _WritingModel(path)
    if task not in _PIPELINES:
        raise NotImplementedError(f"a model of the task '{task}' is loaded by the program that trained it")
    return _PipelineModel(path, task)


class _WritingModel:
    """A table of texts in, a table of the texts that an encoder-decoder writes from them out."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(path).eval()

    def predict(self, table: Any, params: dict[str, Any] | None = None) -> Any:
        """One text for each row of the table, the likeliest; `params` as of transformers' `generate`."""
        import pandas as pd

        asked = {"max_new_tokens": 128, "num_beams": 1, "do_sample": False, **(params or {})}
        texts = [self._write(source, asked) for source in table["source"]]
        return pd.DataFrame({"text": texts}, index=table.index)

    def _write(self, source: str, asked: dict[str, Any]) -> str:
        inputs = self._tokenizer(source, return_tensors="pt", truncation=True)
        kept = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        text: str = self._tokenizer.decode(self._model.generate(**kept, **asked)[0], skip_special_tokens=True)
        return text


class _PipelineModel:
    """A table of texts or images in, a table of answers out."""

    def __init__(self, path: str, task: str) -> None:
        from transformers import pipeline

        self._task = task
        name: Any = _PIPELINES[task]
        words = {} if task == "image-classification" else {"tokenizer": path}
        self._pipeline = pipeline(name, model=path, **words)

    def predict(self, table: Any, params: dict[str, Any] | None = None) -> Any:
        """One row of answers for each row of the table."""
        import pandas as pd

        rows = table.to_dict("records")
        return pd.DataFrame([self._answer(row, params or {}) for row in rows], index=table.index)

    def _answer(self, row: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        if self._task == "question-answering":
            found = self._pipeline(question=row["question"], context=row["context"])
            return {"answer": found["answer"], "score": float(found["score"])}
        if self._task == "causal-lm":
            return {"text": self._pipeline(row["prompt"], **params)[0]["generated_text"]}
        if self._task == "token-classification":
            found = self._pipeline(row["text"])
            return {"entities": json.dumps(found, default=float)}
        if self._task == "image-classification":
            best = self._pipeline(_opened(row["image"]))[0]
        else:
            best = self._pipeline(row["text"], truncation=True)[0]
        return {"label": best["label"], "score": float(best["score"])}


def _opened(content: bytes) -> Any:
    from io import BytesIO

    from PIL import Image

    return Image.open(BytesIO(content)).convert("RGB")
