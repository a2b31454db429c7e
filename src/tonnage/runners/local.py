"""One process on this machine."""

from __future__ import annotations

from typing import ClassVar

from tonnage.runners.runner import Supervised
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Supervised):
    """The worker itself, with no launcher between."""

    name: ClassVar[RunnerName] = "local"

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:  # noqa: ARG002
        return (self.python, "-m", self.worker, str(folder.path))
