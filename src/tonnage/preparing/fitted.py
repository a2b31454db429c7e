"""The categories of an earlier preparation, from its JSON answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tonnage.comparison.door import load_text
from tonnage.errors import DataError


def load_categories(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Column -> categories. DataError where the file is no answer of `tonnage prepare -o json`."""
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
