"""A Ray cluster as a place: its jobs, a bucket that client and nodes share, and commands beside a run."""

from __future__ import annotations

import shlex
import sys
import uuid
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.ray.jobs import DRIVER, RayJobs
from tonnage.places.record import read_record
from tonnage.runs.folder import RunFolder
from tonnage.values import dataclass

OUTPUT: Final = "tonnage-output\n"  # of the command, after what Ray itself prints


@dataclass(frozen=True, kw_only=True)
class RayRuns(BucketRuns):
    """One place of the kind `ray`."""

    @cached_property
    def ray(self) -> RayJobs:
        assert isinstance(self.cloud, RayJobs)
        return self.cloud

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        """By a job of its own that asks the run's actor: with the run's GPUs, in its folder there."""
        record = read_record(folder)
        if record is None:
            name = folder.path.name
            raise TonnageError(f"'{name}' has no job at {self.name}", hint=f"`tonnage show {name}`")
        words = (self.terms.python, "-m", DRIVER, "--exec", record.token, "--home", record.tag.split(":")[1])
        command = shlex.join((*words, "--", str(self.folder_there(folder).path), *argv))
        code, log = self.ray.output(command, f"t-exec-{uuid.uuid4().hex[:12]}")
        _, mark, said = log.partition(OUTPUT)
        if code is None or not mark:
            lines = [line for line in log.splitlines() if line.strip()]
            raise TonnageError(
                f"{self.name}: the command did not run: {lines[-1] if lines else 'nothing was said'}",
                hint=f"`tonnage show {folder.path.name}`: is it running?",
            )
        sys.stdout.write(said)
        return code
