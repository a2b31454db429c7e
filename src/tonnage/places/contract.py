"""What every place does with a run, and the values that pass between it and its callers. Pure.

A run at a place is the run as here: its folder, its supervisor, its journal and its checkpoints, started by the place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from tonnage.errors import InputError
from tonnage.places.states import PlaceState
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.file import AnyPlace

Verb = Literal[
    "check", "render", "submit", "status", "logs", "exec", "stop", "cancel", "resume", "collect", "teardown", "orphans",
    "preemption",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFinding:
    """An obstacle to a run at a place. `refused`: it would fail or wait forever; `doubtful`: it may;
    `unchecked`: none could ask."""

    kind: Literal["refused", "doubtful", "unchecked"]
    message: str
    hint: str = ""  # the command, or the key of places.toml, that mends it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGap:
    """A part of the contract that a place cannot keep, and why.

    `whole`: nothing of it is kept, and whoever asks for it gets `GapError`. Else the reason says which part is missing.
    """

    verb: Verb
    reason: str
    whole: bool = False


class GapError(InputError):
    """Something was asked of a place that it says it cannot do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """All that a submission sends: a script and the commands that send it. The same bytes for the same run."""

    place: str
    kind: str
    tag: str  # under which the place lists the job, whoever is alive to remember it
    token: str
    number: int  # of the submission: 1 for the first, one more for each `resume`
    script: str
    commands: tuple[tuple[str, ...], ...]
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A job that bears our tag though no run waits for it."""

    job_id: str
    run: str
    word: str
    why: str


class Executor(Protocol):
    """Carries out runs at one place. Only `submit` starts anything; the client may die after any line of it."""

    @property
    def name(self) -> str:
        """As places.toml calls it."""

    @property
    def kind(self) -> str: ...

    @property
    def place(self) -> AnyPlace:
        """What is written down of it."""

    @property
    def gaps(self) -> tuple[DeclaredGap, ...]:
        """What it cannot keep of this contract."""

    def folder_there(self, folder: RunFolder) -> RunFolder:
        """Where the run's folder lies on the machines of the place: the same path where it is shared."""

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:
        """Every obstacle to this run, asked of the place itself; nothing is started."""

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        """Script and commands. Pure: nothing is read, written or asked."""

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        """Start the job and give its id; the job there is, where the same submission was sent before."""

    def status(self, folder: RunFolder) -> PlaceState:
        """The state of the run. TonnageError where the place does not answer."""

    def logs(self, folder: RunFolder) -> None:
        """Bring here what journal, figures and log have gained; nothing where the folder is shared."""

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        """Run a command where the run runs; its exit code."""

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        """Ask the run to save and end; where it waits in a queue, take it out."""

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        """End it at once, without a save."""

    def collect(self, folder: RunFolder) -> None:
        """Bring journal, log, measurements and model here."""

    def teardown(self, folder: RunFolder) -> None:
        """Leave nothing of the run's job at the place; what was saved stays."""

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        """Jobs tagged as of this folder of runs that no run waits for; `end`: end them."""


def token_of(folder: Path, number: int) -> str:
    """What makes a submission one and the same, however often it is sent: 12 hexadecimal digits.

    >>> token_of(Path("/home/me/runs/a"), 1) == token_of(Path("/home/me/runs/a"), 1)
    True
    """
    return hashlib.sha256(f"{folder}\n{number}".encode()).hexdigest()[:12]


def gap_of(gaps: Sequence[DeclaredGap], verb: Verb) -> DeclaredGap | None:
    """The gap that leaves a verb out altogether; None where the place has it."""
    return next((one for one in gaps if one.verb == verb and one.whole), None)


def must_have(executor: Executor, verb: Verb) -> None:
    """GapError with the reason where the place says that it cannot do this."""
    if gap := gap_of(executor.gaps, verb):
        raise GapError(f"{executor.name} cannot `{verb}`: {gap.reason}", hint="docs/places.md lists what each can")


def home_mark(runs: Path) -> str:
    """Tells the jobs of one folder of runs from those of others: 8 hexadecimal digits."""
    return hashlib.sha256(str(runs).encode()).hexdigest()[:8]


def tag_of(folder: Path, number: int) -> str:
    """The tag of a run's job: `tonnage:HOME:TOKEN:NAME`."""
    return f"tonnage:{home_mark(folder.parent)}:{token_of(folder, number)}:{folder.name}"


def read_tag(tag: str) -> tuple[str, str, str] | None:
    """(home, token, run) of a tag; None where it is not one of ours.

    >>> read_tag("tonnage:0a1b2c3d:0123456789ab:first-run")
    ('0a1b2c3d', '0123456789ab', 'first-run')
    >>> read_tag("tonnage is fun") is None
    True
    """
    parts = tag.strip().split(":", 3)
    return (parts[1], parts[2], parts[3]) if len(parts) == 4 and parts[0] == "tonnage" else None
