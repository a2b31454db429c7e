"""What a stream can do of a preparation: steps that need one row, a table beside it and categories known before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tonnage.errors import DataError, InputError
from tonnage.preparing.spec import Encode, Preparation, Step, StreamTerms, Window
from tonnage.workload.file.text import load_text


def streamed(asked: Preparation, fitted: Mapping[str, tuple[str, ...]]) -> tuple[Preparation, StreamTerms]:
    """The preparation with the categories of `fitted` (column -> categories), and how its rows are read.

    InputError names the first step that needs rows which have not arrived.
    """
    if asked.stream is None:
        raise InputError("--stream: the file has no `prepare.stream`", hint="stream: {checkpoint: FOLDER}")
    base = asked.sources[asked.base]
    if base.format == "delta":
        raise InputError(
            f"--stream: source '{base.name}' is a Delta table, and files that arrive in a folder are read",
            hint="name the folder under `file`, with `format`",
        )
    steps = tuple(_step(f"`prepare.steps[{number}]`", one, fitted) for number, one in enumerate(asked.steps))
    return replace(asked, steps=steps), asked.stream


def _step(place: str, step: Step, fitted: Mapping[str, tuple[str, ...]]) -> Step:
    if isinstance(step, Window):
        raise InputError(
            f"{place}: a stream has no window: the rows before and after one may arrive in any later file",
            hint="prepare without --stream, or take the step out and put the window over the result",
        )
    if not isinstance(step, Encode) or step.categories is not None:
        return step
    if step.how == "frequency":
        raise InputError(
            f"{place}: a stream has no share of '{step.column}' in all rows: they have not arrived yet",
            hint="how: one-hot or ordinal, with `categories` or `stream.fitted`",
        )
    if step.column not in fitted:
        raise InputError(
            f"{place}: the categories of '{step.column}' are found in all rows, and a stream has not got them yet",
            hint="state `categories`, or run a batch with `-o json > fitted.json` and name it as `stream.fitted`",
        )
    return step.model_copy(update={"categories": fitted[step.column]})


def load_categories(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Column -> categories, of an earlier preparation. DataError for no answer of `tonnage prepare -o json`."""
    try:
        document = json.loads(load_text(path))
    except ValueError as error:
        raise DataError(f"{path}: no JSON: {error}", hint="tonnage prepare FILE -o json > fitted.json") from error
    categories = document.get("categories") if isinstance(document, dict) else None
    if not isinstance(categories, dict) or not all(_texts(one) for one in categories.values()):
        raise DataError(f"{path} has no categories of columns", hint="tonnage prepare FILE -o json > fitted.json")
    return {column: tuple(found) for column, found in categories.items()}


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
