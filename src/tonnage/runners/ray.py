"""Ray Train's TorchTrainer: on a local cluster that it starts, or on the one RAY_ADDRESS names.

A driver process runs between supervisor and workers: `ray_driver.py`. The workers run in threads of Ray's actors,
which take no signals; they are asked to save by the run folder's stop file, so the folder must be on a disk that all
nodes share.
"""

from __future__ import annotations

from typing import ClassVar

from tonnage.runners.runner import Supervised
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import SignalTo
from tonnage.runs.spec import RunnerName, RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray(Supervised):
    """N workers placed by Ray."""

    name: ClassVar[RunnerName] = "ray"
    extra: ClassVar[tuple[str, str] | None] = ("ray", "ray")
    signal_to: ClassVar[SignalTo] = "nobody"

    def command(self, spec: RunSpec, folder: RunFolder) -> tuple[str, ...]:
        on_gpus = spec.launch.device == "cuda" or (spec.launch.device == "auto" and self.gpus > 0)
        gpus = ("--gpus",) if on_gpus else ()  # a worker that asks Ray for none sees none
        return (self.python, "-m", "tonnage.runners.ray_driver", "--worker", self.worker, *gpus, str(folder.path))

    def more_env(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:  # noqa: ARG002
        address = self.environ.get("RAY_ADDRESS")
        return (("RAY_TRAIN_V2_ENABLED", "1"), *([("RAY_ADDRESS", address)] if address else []))
