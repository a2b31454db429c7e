"""A Kubernetes cluster by its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from getpass import getuser
from pathlib import Path
from typing import ClassVar, Final

from tonnage.places.contract import Gap, GapError, Orphan, PlaceFinding, Submission, Verb
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.rendering import folder_there, submission
from tonnage.places.states import PlaceState
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

NOT_BUILT: Final = "what would be sent is rendered and checked; sending it is not built yet"
_MISSING: Final[tuple[Verb, ...]] = (
    "check", "submit", "status", "logs", "exec", "stop", "cancel", "resume", "collect", "teardown", "orphans",
    "preemption",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """One place of the kind `kubernetes`."""

    kind: ClassVar[str] = "kubernetes"
    gaps: ClassVar[tuple[Gap, ...]] = tuple(Gap(verb=verb, reason=NOT_BUILT, whole=True) for verb in _MISSING)
    name: str
    place: KubernetesPlace
    owner: str = field(default_factory=getuser)

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return folder_there(self.place, folder)

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        return submission(self.place, spec, job, folder, name=self.name, owner=self.owner, number=number)

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:
        raise self._not_built("check", folder)

    def submit(self, submission: Submission, folder: RunFolder) -> str:  # noqa: ARG002
        raise self._not_built("submit", folder)

    def status(self, folder: RunFolder) -> PlaceState:
        raise self._not_built("status", folder)

    def logs(self, folder: RunFolder) -> None:
        raise self._not_built("logs", folder)

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:  # noqa: ARG002
        raise self._not_built("exec", folder)

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:  # noqa: ARG002
        raise self._not_built("stop", folder)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:  # noqa: ARG002
        raise self._not_built("cancel", folder)

    def collect(self, folder: RunFolder) -> None:
        raise self._not_built("collect", folder)

    def teardown(self, folder: RunFolder) -> None:
        raise self._not_built("teardown", folder)

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:  # noqa: ARG002
        return ()

    def _not_built(self, verb: Verb, folder: RunFolder) -> GapError:
        return GapError(f"{self.name} cannot `{verb}` {folder.path.name}: {NOT_BUILT}", hint="--dry-run prints it")
