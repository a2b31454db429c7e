"""Which object of a bucket holds what of a run. Pure.

    objects/SHA256                        files of the client that runs read
    HOME/RUN/lease.json                   the newest submission: number and token
    HOME/RUN/NUMBER/machine               the machine that works, where the place may have made two
    HOME/RUN/NUMBER/meeting.json          of several machines: where the first is, renewed while it works
    HOME/RUN/NUMBER/machines/K.json       machine K of several, renewed while it works; 0 is the first
    HOME/RUN/NUMBER/sent/...              what one submission says, the journal up to it
    HOME/RUN/NUMBER/asked/stop | cancel   what the client asks of its supervisor
    HOME/RUN/NUMBER/grown/FILE/K          MiB K of a file that grows: journal, figures, samples, log, logs of
                                          further machines
    HOME/RUN/NUMBER/beat.json             the newest heartbeat
    HOME/RUN/NUMBER/made/THING.json       what was saved: its files with sizes and hashes, written after the files

Where a place starts a submission again on another machine, and cannot know that the first is dead, each start has an
epoch: it writes below NUMBER-EPOCH. Whoever writes under an older number or epoch touches nothing of a newer one.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.runs.folder import RunFolder
from tonnage.runs.log_parts import is_older_part
from tonnage.runs.logs import MACHINE_LOG
from tonnage.values import dataclass

SEGMENT_BYTES: Final = 1 << 20
GROWN: Final = ("journal.jsonl", "metrics.jsonl", "samples.jsonl", "log.txt")  # the journal first: it tells the end
SENT: Final = ("spec.json", "job.json", "place.json")
ALONG: Final = ("prediction.json", "heartbeat.json", "journal.jsonl")  # sent too, where they are there
LEASE: Final = "lease.json"
APART: Final = frozenset({*GROWN, *SENT, *ALONG, "inputs", "exits", "checkpoints", "reserve", "stop", "cancel",
                          "notice", "progress", "mirror.json", "place.log"})  # fmt: skip
STEP: Final = re.compile(r"checkpoints/step-(\d+)")
NUMBER_DIGITS: Final = 6
EPOCH_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Of one submission of one run.

    >>> Keys(base="0a1b2c3d/bert", number=12).sent("spec.json")
    '0a1b2c3d/bert/000012/sent/spec.json'
    >>> Keys(base="0a1b2c3d/bert", number=12, epoch=3).beat
    '0a1b2c3d/bert/000012-0003/beat.json'
    """

    base: str  # HOME/RUN
    number: int  # of the submission
    epoch: int = 0  # of the start, where the place counts them

    @property
    def submission(self) -> str:
        """What the client says to all starts of a submission lies below it."""
        return f"{self.base}/{self.number:0{NUMBER_DIGITS}d}"

    @property
    def part(self) -> str:
        """What one start writes lies below it."""
        return f"{self.submission}-{self.epoch:0{EPOCH_DIGITS}d}" if self.epoch else self.submission

    @property
    def lease(self) -> str:
        return f"{self.base}/{LEASE}"

    @property
    def machine(self) -> str:
        return f"{self.part}/machine"

    @property
    def meeting(self) -> str:
        return f"{self.part}/meeting.json"

    def member(self, number: int) -> str:
        return f"{self.part}/machines/{number}.json"

    @property
    def beat(self) -> str:
        return f"{self.part}/beat.json"

    def sent(self, name: str) -> str:
        return f"{self.submission}/sent/{name}"

    def asked(self, word: str) -> str:
        return f"{self.submission}/asked/{word}"

    def grown(self, name: str, segment: int) -> str:
        return f"{self.part}/grown/{name}/{segment:08d}"

    def made(self, artifact: str) -> str:
        return f"{self.part}/made/{artifact}.json"

    def data(self, digest: str) -> str:
        return f"{self.part}/data/{digest}"


def input_key(digest: str) -> str:
    """Of a file that runs read: one object, however many runs read it."""
    return f"objects/{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedArtifact:
    """An artifact of a run that is whole in the bucket: a checkpoint, the model, the result."""

    number: int  # of the submission that wrote it
    epoch: int = 0  # of its start
    name: str  # from the run's folder: checkpoints/step-000010, model, result.json
    files: dict[str, tuple[int, str]]  # path from the run's folder: size in bytes, SHA-256

    @property
    def writer(self) -> tuple[int, int]:
        """Submission and start: the greater one is the newer."""
        return self.number, self.epoch

    @property
    def step(self) -> int | None:
        """Of a checkpoint."""
        found = STEP.fullmatch(self.name)
        return int(found[1]) if found else None


def artifact_of(key: str, content: dict[str, Any]) -> SavedArtifact:
    """What lies under a key of `made`. TonnageError where it names files outside the run's folder."""
    before, _, rest = key.partition("/made/")
    files = {str(_inside(name)): (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
    number, _, epoch = before.rpartition("/")[2].partition("-")
    return SavedArtifact(number=int(number), epoch=int(epoch or 0), name=rest.removesuffix(".json"), files=files)


def artifact_names(folder: RunFolder) -> list[str]:
    """The names of what a run's folder has to save: whole checkpoints, and everything else that is not apart."""
    steps = sorted(one.name for one in folder.checkpoints.glob("step-*") if one.is_dir())
    others = sorted(
        one.name for one in folder.path.iterdir()
        if one.name not in APART and one.suffix not in {".lock", ".pid"} and not one.name.startswith(".")
        and not MACHINE_LOG.fullmatch(one.name) and not is_older_part(one.name)
    )  # fmt: skip
    return [*(f"checkpoints/{name}" for name in steps if STEP.fullmatch(f"checkpoints/{name}")), *others]


def files_of(folder: Path, artifact: str) -> list[Path]:
    """Every file of an artifact."""
    path = folder / artifact
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise TonnageError(f"the bucket names a file outside the run's folder: {name}", hint="do not trust that bucket")
    return path
