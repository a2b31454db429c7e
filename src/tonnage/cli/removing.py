"""Which runs may go, and their end: folder and entry in the index."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.home_runs import all_runs, find_run
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.states import RunState
    from tonnage.settings import Settings


def choose(
    settings: Settings, names: Sequence[str], *, older_than: str | None, keep: int | None, checkpoints: bool
) -> list[Path]:
    """Folders to delete: of the runs named, or of all that the rules reach. InputError where one may not go."""
    if names and (older_than is not None or keep is not None):
        raise InputError("names and rules at once", hint="name runs, or give --older-than and --keep")
    if not names and older_than is None and keep is None:
        raise InputError("no run is named", hint="`tonnage runs rm RUN`, or --older-than 30d, or --keep 10")
    found = [_named(settings, name) for name in names] if names else _by_rule(settings, older_than, keep)
    if not checkpoints:
        return [folder.path for folder in found]
    return [folder.checkpoints for folder in found if _succeeded(folder) and any(folder.checkpoints.glob("*"))]


def delete(settings: Settings, paths: Sequence[Path]) -> None:
    """Delete them; of a whole run the entry in the index goes first, so that none is left without its folder."""
    from tonnage.api.committing import settle_ended
    from tonnage.runs.folder import RunFolder
    from tonnage.store import open_store

    settle_ended(settings.home)  # by what the folders tell, while they are there
    with open_store(settings.database_url) as store:
        for path in paths:
            if (path / "spec.json").exists():
                store.forget_run(RunFolder(path))
                shutil.rmtree(path)
            else:
                for one in path.iterdir():
                    shutil.rmtree(one)


def size_of(path: Path) -> int:
    """Bytes of all files below."""
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def _named(settings: Settings, name: str) -> RunFolder:
    folder = find_run(settings, name)
    if _may_go(folder) is None:
        raise InputError(
            f"'{name}' is not over",
            hint=f"`tonnage cancel {name}` ends it; a lost run can be resumed and then cancelled",
        )
    return folder


def _by_rule(settings: Settings, older_than: str | None, keep: int | None) -> list[RunFolder]:
    ended = [(state.ended_at, folder) for folder in all_runs(settings) if (state := _may_go(folder)) and state.ended_at]
    ended.sort(key=lambda one: one[0] or datetime.min.replace(tzinfo=UTC), reverse=True)
    before = None if older_than is None else datetime.now(UTC) - timedelta(seconds=_duration_s(older_than))
    return [folder for at, folder in ended[keep or 0 :] if at is not None and (before is None or at < before)]


def _may_go(folder: RunFolder) -> RunState | None:
    """The state of a run that has ended and that no process holds; None for all others."""
    from tonnage.runs.liveness import has_supervisor, is_held, observed_state, workers_lock
    from tonnage.runs.states import RunStatus

    try:
        state = observed_state(folder)
    except (InputError, ValueError, OSError):  # cannot be read: the user has to delete it
        return None
    held = has_supervisor(folder) or is_held(workers_lock(folder))
    lost = state.state is RunStatus.LOST and state.alone is None  # nothing else could end a dead script better
    return state if state.state.ended and not lost and not held else None


def _succeeded(folder: RunFolder) -> bool:
    from tonnage.runs.states import RunStatus

    return folder.state().state is RunStatus.SUCCEEDED


def _duration_s(text: str) -> float:
    from tonnage.workload.durations import parse_duration_s

    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"--older-than {text}: {error}", hint="such as 30d or 12h") from error
