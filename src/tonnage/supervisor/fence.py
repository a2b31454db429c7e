"""Two writers of one run are impossible: a supervisor works only as long as its submission is the run's newest.

The lock of the run's folder holds on one machine. Where a folder is shared, and the client goes on with the run
elsewhere because its place no longer answers, the token in `place.json` is another one: the supervisor that finds it so
ends without a last word, since the run is no longer its own. So does one of an older start of the same submission,
where the place counts its starts (`epoch`).
"""

from __future__ import annotations

import json
from pathlib import Path

from tonnage.runs.folder import RunFolder


class Superseded(Exception):
    """A newer submission of the run was made."""


class Fence:
    """The submission that a supervisor was started for. Runs without a place have none, and are never superseded."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = folder.place_file
        self._token = _token(self._file)

    def broken(self) -> bool:
        """Whether the file names another submission. One that cannot be read now is asked again."""
        token = _token(self._file)
        return token is not None and token != self._token


def _token(file: Path) -> str | None:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return f"{values['token']}.{values.get('epoch', 0)}"
    except (OSError, ValueError, KeyError):
        return None
