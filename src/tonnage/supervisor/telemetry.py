"""What is measured and reported beside the workers, in a process of its own: it may fail, the run goes on."""

from __future__ import annotations

from collections.abc import Set

from tonnage.runs.folder import RunFolder


class Telemetry:
    """Nothing yet is measured beside the workers."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @property
    def pids(self) -> Set[int]:
        return frozenset()

    def start(self) -> None: ...

    def look(self) -> None: ...

    def finish(self, timeout_s: float) -> None: ...
