"""The folder of one sweep: `TONNAGE_HOME/sweeps/NAME`, for its user alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.files import make_private_folder, write_whole
from tonnage.runs.liveness import Held, hold_lock
from tonnage.runs.secrets import masked
from tonnage.sweeps.sweep import Sweep
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """Where a sweep is kept."""

    path: Path

    @property
    def sweep_file(self) -> Path:  # what was asked, as it was when the sweep began
        return self.path / "sweep.json"

    @property
    def study_file(self) -> Path:
        return self.path / "study.db"

    @property
    def clock_file(self) -> Path:  # seconds under way so far
        return self.path / "clock.json"

    def begin(self, sweep: Sweep) -> None:
        """Make the folder. InputError where a sweep of this name is there."""
        if self.sweep_file.exists():
            hint = f"`tonnage sweep {sweep.file} --resume` goes on with it, --name NAME starts another"
            raise InputError(f"a sweep named '{sweep.name}' is there already", hint=hint)
        make_private_folder(self.path)
        write_whole(self.sweep_file, masked(json.dumps(sweep.fingerprint(), indent=2)) + "\n")

    def check_same(self, sweep: Sweep) -> None:
        """InputError where there is no sweep to go on with, or the file asks for another."""
        if not self.sweep_file.exists():
            raise InputError(f"no sweep is named '{sweep.name}'", hint="leave out --resume to begin it")
        asked = json.loads(masked(json.dumps(sweep.fingerprint())))
        changed = _first_difference(json.loads(self.sweep_file.read_text(encoding="utf-8")), asked)
        if changed is not None:
            hint = "trials of both could not be compared: put it back, or --name NAME starts another sweep"
            raise InputError(f"`{changed}` has changed since the sweep '{sweep.name}' began", hint=hint)

    def workload_file(self) -> Path:
        """The file that the sweep is of."""
        return Path(json.loads(self.sweep_file.read_text(encoding="utf-8"))["file"])

    def seconds(self) -> float:
        """How long the sweep was under way before."""
        try:
            return float(json.loads(self.clock_file.read_text(encoding="utf-8"))["wall_s"])
        except (FileNotFoundError, ValueError, KeyError):
            return 0.0

    def save_seconds(self, seconds: float) -> None:
        write_whole(self.clock_file, json.dumps({"wall_s": round(seconds, 3)}) + "\n")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the sweep, so that no other process carries it out. InputError where one does."""
        try:
            with hold_lock(self.path / "lock"):
                yield
        except Held:
            raise InputError(
                f"the sweep '{self.path.name}' is under way", hint="wait for it, or end it first"
            ) from None


def find_sweep(home: Path, name: str) -> SweepFolder:
    """A sweep by name. UnknownName with the nearest."""
    names = sorted(one.parent.name for one in (home / "sweeps").glob("*/sweep.json"))
    if name not in names:
        close = nearest(name, names)
        listed = f"sweeps: {', '.join(names)}" if names else "`tonnage sweep FILE` begins one"
        raise UnknownName(f"no sweep is named '{name}'", suggestions=close, hint=did_you_mean(close, listed))
    return SweepFolder(home / "sweeps" / name)


def _first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """The key of the first thing that differs, with dots."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                return inner.removeprefix("document.")
            if (found := _first_difference(old[key], new[key], inner)) is not None:
                return found
        return None
    return None if old == new else path.removeprefix("document.")
