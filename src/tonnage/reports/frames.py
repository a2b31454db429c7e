"""Rows as a data frame of whichever library is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from tonnage.errors import InputError, MissingExtra

Library = Literal["pandas", "polars"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars")


def make_frame(columns: Sequence[str], rows: Sequence[Sequence[Any]], library: Library | None) -> Any:
    """A pandas or polars DataFrame; with `library` None the first of the two that is installed.

    Raises MissingExtra when it is not installed, InputError when `library` is another name.
    """
    if library is not None and library not in LIBRARIES:
        raise InputError(f"no data frame library '{library}' is known here", hint=f"one of {', '.join(LIBRARIES)}")
    wanted = LIBRARIES if library is None else (library,)
    chosen = next((name for name in wanted if find_spec(name) is not None), None)
    if chosen is None:
        raise MissingExtra("a data frame", "frames")
    module = import_module(chosen)
    table = {column: [row[place] for row in rows] for place, column in enumerate(columns)}
    return module.DataFrame(table) if chosen == "pandas" else module.DataFrame(table, strict=False)
