"""Texts to token numbers, as every engine calls it on batches of rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tonnage.errors import DataError, MissingExtra

Tokenise = Callable[[Sequence[str | None]], list[list[int] | None]]


def tokeniser(folder: str, most: int) -> Tokenise:
    """The folder's fast tokenizer, texts cut at `most` tokens; None stays None. DataError without tokenizer.json."""
    made = _opened(folder, most)

    def tokenise(texts: Sequence[str | None]) -> list[list[int] | None]:
        encoded = iter(made.encode_batch([one for one in texts if one is not None]))
        return [None if one is None else list(next(encoded).ids) for one in texts]

    return tokenise


@cache
def _opened(folder: str, most: int) -> Any:
    try:
        library: Any = importlib.import_module("tokenizers")
    except ImportError as error:
        raise MissingExtra("a tokenizer", "prepare") from error
    file = Path(folder) / "tokenizer.json"
    if not file.is_file():
        raise DataError(f"{folder} has no tokenizer.json", hint="a folder that save_pretrained wrote")
    made = library.Tokenizer.from_file(str(file))
    made.no_padding()
    made.enable_truncation(most)
    return made
