"""Ask one rival about the rows on stdin (CSV); one JSON line an answer on stdout: `python -m rivals.run MODULE`.

Needs the standard library and the rival alone, so that it runs in the rival's own environment.
"""

from __future__ import annotations

import csv
import importlib
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any


def answers(module: Any, rows: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Each row's id with the value, or with the reason why there is none."""
    from rivals.cells import Declined

    refusal = module.available() if hasattr(module, "available") else ""
    for row in rows:
        try:
            value, reason = (None, refusal) if refusal else module.predict(row)
        except Declined as declined:
            value, reason = None, str(declined)
        except (AssertionError, ValueError, KeyError, TypeError, ZeroDivisionError, RuntimeError) as error:
            value, reason = None, f"its error: {type(error).__name__}"
        yield {"id": row["id"], "value": value, "reason": reason}


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        module = importlib.import_module(f"rivals.{sys.argv[1]}")
        for answer in answers(module, list(csv.DictReader(sys.stdin))):
            out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
