"""Embeddings as OpenAI's API gives them (POST /embeddings), read into unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from tonnage.gateway.proxy.side_request import NotUsable

Vectors = NDArray[np.float32]


def embeddings_body(model: str, texts: Sequence[str]) -> bytes:
    return orjson.dumps({"model": model, "input": list(texts), "encoding_format": "float"})


def read_embeddings(status: int, body: bytes, count: int) -> Vectors:
    """`count` unit vectors, in the order of the texts. Raises NotUsable."""
    if status != 200:
        raise NotUsable(str(status))
    try:
        said = orjson.loads(body)["data"]
        rows = [row["embedding"] for row in sorted(said, key=lambda row: row["index"])]
        found = np.asarray(rows, dtype=np.float32)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise NotUsable("what has no embeddings") from error
    if found.ndim != 2 or len(found) != count:
        raise NotUsable(f"{len(found)} embeddings for {count} texts")
    sizes = np.linalg.norm(found, axis=1, keepdims=True)
    if not np.all(np.isfinite(sizes)) or not np.all(sizes > 0):
        raise NotUsable("embeddings without a direction")
    unit: Vectors = found / sizes
    return unit
