"""Corrections of work on tables as a file at home: `tonnage/tabular-calibration@1`, written whole or not at all."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Final

from tonnage.calibration.store import numbers_within, plain_value, rebuild
from tonnage.calibration.tabular_fit import TabularFit
from tonnage.errors import InputError
from tonnage.files import save_for_user

SCHEMA: Final = "tonnage/tabular-calibration@1"
FILE_NAME: Final = "tabular-calibration.json"
HINT: Final = "write it again: `tonnage calibrate --tabular FILE`; or remove it"


def tabular_file(home: Path) -> Path:
    """Where plans and benches look for corrections."""
    return home / FILE_NAME


def save_tabular(fit: TabularFit, path: Path) -> None:
    """Write the file. Raises InputError where that cannot be done."""
    text = json.dumps({"schema": SCHEMA, **plain_value(fit)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    save_for_user(path, text, parents=True)


def load_tabular(home: Path) -> TabularFit | None:
    """The corrections at home; None where there are none. Raises InputError for a file that is damaged."""
    path = tabular_file(home)
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("schema", None) != SCHEMA:
            raise InputError(f"{path} is of another version", hint=HINT)
        fit: TabularFit = rebuild(TabularFit, document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}", hint=HINT) from error
    if not all(isfinite(value) for value in numbers_within(plain_value(fit), "").values()):
        raise InputError(f"{path} is damaged: a figure is not finite", hint=HINT)
    return fit
