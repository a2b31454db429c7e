"""Where an attempt at a run begins: noted in the journal, and said aloud where ground is lost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tonnage.errors import InputError
from tonnage.recipes.checkpoints import CheckpointInvalid
from tonnage.runs.data_prints import check_prints
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.progress import read_progress
from tonnage.runs.spec import RunSpec

WHO = "rank0"


def note_beginning(folder: RunFolder, *, step: int, path: str | None, faults: Sequence[CheckpointInvalid] = ()) -> None:
    """`path`: what it goes on from; `faults`: newer checkpoints that did not verify. Nothing for a first attempt."""
    for fault in faults:
        folder.record(EventKind.CHECKPOINT_INVALID, who=WHO, path=str(fault.path), message=fault.message)
    mark = read_progress(folder.path)
    lost = max(0, mark.step - step) if mark else 0
    if path is None and not lost and not faults:
        return
    said: dict[str, Any] = {} if path is not None else {"message": _from_nothing(lost, len(faults))}
    folder.record(EventKind.RESUMED, who=WHO, step=step, path=path, lost_steps=lost, **said)
    for text in said.values():
        print(f"warning: {text}", file=sys.stderr)  # noqa: T201


def changed_data(spec: RunSpec) -> InputError | None:
    """What is wrong where the files of the rows are not those the run began with."""
    try:
        check_prints(spec.data)
    except InputError as error:
        return error
    return None


def _from_nothing(lost: int, faults: int) -> str:
    """Why all is done again.

    >>> _from_nothing(1500, 3)
    'none of 3 checkpoints verifies: the run begins again at step 0, 1,500 steps are done again'
    """
    why = f"none of {faults} checkpoints verifies" if faults else "no checkpoint was written"
    return f"{why}: the run begins again at step 0, {lost:,} steps are done again"
