"""What a watch has asked of a service that runs: at least so many replicas, or fewer requests at a time for each.

It lies as a file in the service's private folder, which the service reads at each of its decisions; without the file
its own settings hold. A service that starts begins without one.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tonnage.errors import DataError
from tonnage.files import write_whole
from tonnage.values import dataclass

RAISED: Final = "raised.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """`least` 0, `slots` None: the service's own. `gave_up`: a change did not help, and none is tried again."""

    least: int = 0
    slots: int | None = None
    p95_before_s: float | None = None
    gave_up: bool = False


def read_raised(folder: Path) -> Raised | None:
    """What is asked now; None: nothing. DataError where the file cannot be read."""
    file = folder / RAISED
    try:
        return Raised(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file} cannot be read: {error}", hint="remove it: the service's own settings hold") from error


def write_raised(folder: Path, raised: Raised) -> None:
    """Ask for it."""
    write_whole(folder / RAISED, json.dumps(asdict(raised)) + "\n")


def clear_raised(folder: Path) -> None:
    """Nothing is asked any more."""
    (folder / RAISED).unlink(missing_ok=True)
