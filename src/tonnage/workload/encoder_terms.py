"""The words of a service without generated text: what its model does, in which numbers, on which runtime."""

from __future__ import annotations

from typing import Literal

Task = Literal["classification", "token-classification", "embedding", "reranking", "question-answering",
               "tabular-classification", "tabular-regression", "image-classification", "image-embedding"]  # fmt: skip
Number = Literal["fp32", "bf16", "fp16", "int8"]
Runtime = Literal["onnx", "torch"]
