"""What it takes to carry a run out at another place: what differs there, and the steps of the move in their order.
Pure.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from tonnage.pricing.extras import Charge
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

How = Literal["sent", "copied", "read", "fetched"]  # with the run; by hand; where it lies, by each run; from its source
LOCAL: Final = "local"
TRIAL_HOURS: Final = 0.25
CONTEXT_LINES: Final = 3
MOVED: Final[frozenset[How]] = frozenset({"sent", "copied"})  # once, before the first run there
SizeBasis = Literal["measured", "stated", "computed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCost:
    """What the work costs and takes, by the plan."""

    line: str  # which option of the plan, for a person
    cost_usd: Figure
    time_s: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSide:
    """The run at one of the two places."""

    place: str
    kind: str
    usd_per_hour: float | None  # of all machines of a run; None: no price is known
    most_usd_a_job: float | None
    predicted: PredictedCost | None
    why_unpredicted: str  # empty where it is predicted
    commands: tuple[tuple[str, ...], ...]  # that send it
    script: str  # what they send
    refused: str = ""  # why the place cannot carry the run as it is; nothing is rendered then
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermChange:
    """A fact of the run that differs between the places. None: the place has no such thing."""

    name: str
    before: str | None
    after: str | None
    note: str = ""

    @property
    def dropped(self) -> bool:
        """Whether it does not carry over."""
        return self.before is not None and self.after is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Something that the run reads, or has made, and how it comes to the other place."""

    what: str
    how: How
    origin: str
    target: str
    size_gb: float | None  # GB (10⁹ bytes); None: not known
    size_basis: SizeBasis | None
    charges: tuple[Charge, ...] | None  # of the provider that it leaves; empty: nothing is charged; None: not known
    time_s: float | None  # at the rate of the relocation
    commands: tuple[str, ...] = ()
    note: str = ""

    @property
    def usd(self) -> float | None:
        return None if self.charges is None else sum(charge.usd for charge in self.charges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the move: commands of a shell, in their order."""

    title: str
    commands: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A run of one place as the other's."""

    run: str
    before: PlaceSide
    after: PlaceSide
    changes: tuple[TermChange, ...]
    copies: tuple[Copied, ...]
    steps: tuple[Step, ...]
    diff: tuple[str, ...]  # of what is sent, in the unified format
    gbit_per_s: float  # assumed of every copy

    @property
    def copy_usd(self) -> float | None:
        """Of all that is moved once; None where a part is not known."""
        moved = [one.usd for one in self.copies if one.how in MOVED]
        return None if any(usd is None for usd in moved) else sum(usd or 0.0 for usd in moved)

    @property
    def copy_s(self) -> float | None:
        """One copy after the other; None where the size of one is not known."""
        times = [one.time_s for one in self.copies if one.how in MOVED]
        return None if any(time is None for time in times) else sum(time or 0.0 for time in times)

    @property
    def saved_usd(self) -> float | None:
        """By the plan, of one run; negative: the other place is dearer. None where a side is not predicted."""
        if self.before.predicted is None or self.after.predicted is None:
            return None
        return self.before.predicted.cost_usd.value - self.after.predicted.cost_usd.value

    @property
    def paid_back_after_runs(self) -> float | None:
        """Runs until the copies are paid back; None where nothing is saved, or a figure is not known."""
        if self.saved_usd is None or self.copy_usd is None or self.saved_usd <= 0:
            return None
        return self.copy_usd / self.saved_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What the steps are made of."""

    target: str  # FILE or RUN, as it was asked for
    run: str  # its name
    begun: bool  # a run that can go on, rather than a file
    alive: bool
    options: tuple[str, ...]  # of `tonnage run` and `resume`, which the other place needs
    rewritten: tuple[tuple[str, str], ...]  # locations in the workload file: as they are, as they will be
    images: tuple[str, str] | None  # the image of each place, where both are one by its digest
    builds: bool  # the other place takes an image and the first one has none
    secrets: tuple[str, ...]  # variables that the run needs
    secret_commands: tuple[str, ...]  # that store them for the other place; empty: they come along with the run


def steps_of(moved: Moved, before: PlaceSide, after: PlaceSide, copies: Sequence[Copied]) -> tuple[Step, ...]:
    """Every step, the way back last."""
    return tuple(_steps(moved, before, after, copies))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTerms:
    """The table of a place in places.toml."""

    kind: str
    values: Mapping[str, Any]  # by key, defaults included; None: not written down
    written: frozenset[str]  # keys that the file names


def term_changes(before: WrittenTerms, after: WrittenTerms, *, apart: frozenset[str]) -> Iterator[TermChange]:
    """Every written key whose value differs, and every one that the other kind does not have. `apart`: keys left out.

    >>> slurm = WrittenTerms(kind="slurm", values={"grace_s": 60, "qos": "high"}, written=frozenset({"qos"}))
    >>> ssh = WrittenTerms(kind="ssh", values={"grace_s": 30, "user": None}, written=frozenset({"grace_s"}))
    >>> [(one.name, one.before, one.after) for one in term_changes(slurm, ssh, apart=frozenset())]
    [('grace_s', '60', '30'), ('qos', 'high', None)]
    """
    for key in dict.fromkeys((*before.values, *after.values)):
        if key in apart:
            continue
        was, now = before.values.get(key), after.values.get(key)
        if key in before.values and key in after.values:
            if was != now and key in before.written | after.written:
                yield TermChange(name=key, before=shown(was), after=shown(now))
        elif key in before.written and was is not None:
            note = f"a place of kind {after.kind} has no such key"
            yield TermChange(name=key, before=shown(was), after=None, note=note)
        elif key in after.written and now is not None:
            note = f"a place of kind {before.kind} has no such key"
            yield TermChange(name=key, before=None, after=shown(now), note=note)


def shown(value: Any) -> str | None:
    """A value of TOML as a cell shows it.

    >>> shown(["a", "b"]), shown("gpu"), shown(True), shown(None)
    ('["a", "b"]', 'gpu', 'true', None)
    """
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def body_diff(before: str, after: str, *, names: tuple[str, str]) -> tuple[str, ...]:
    """What is sent to the one place and to the other, as a unified diff; empty where it is the same.

    >>> body_diff("a\\nb\\n", "a\\nc\\n", names=("one", "other"))
    ('--- one', '+++ other', '@@ -1,2 +1,2 @@', ' a', '-b', '+c')
    """
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), fromfile=names[0], tofile=names[1], lineterm="", n=CONTEXT_LINES
    )
    return tuple(lines)


def _steps(moved: Moved, before: PlaceSide, after: PlaceSide, copies: Sequence[Copied]) -> Iterator[Step]:
    yield Step(
        title=f"Ask {after.place} whether it can carry the run",
        commands=(_line("tonnage", "places", "check", after.place),),
    )
    yield from _image(moved, after)
    yield from _secrets(moved)
    for one in copies:
        if one.how == "copied":
            yield Step(title=f"Copy {one.what}", commands=one.commands, note=one.note)
    if moved.rewritten:
        lines = "; ".join(f"{was} becomes {now}" for was, now in moved.rewritten)
        yield Step(title="Name the copies in the workload file", note=lines)
    yield from _carry(moved, before, after)
    yield from _leave(moved, before)


def _image(moved: Moved, after: PlaceSide) -> Iterator[Step]:
    if moved.images is not None:
        was, now = (f"docker://{one}" for one in moved.images)
        yield Step(title="Copy the image to the registry that the other place reads",
                   commands=(_line("skopeo", "copy", "--all", was, now.partition("@")[0]),))  # fmt: skip
    elif moved.builds:
        yield Step(
            title="Build the image and push it",
            commands=(_line("tonnage", "image", "build", moved.target),),
            note=f"its digest is places.{after.place}.image",
        )


def _secrets(moved: Moved) -> Iterator[Step]:
    if moved.secrets and moved.secret_commands:
        yield Step(
            title=f"Put {', '.join(moved.secrets)} into the other place's store of secrets",
            commands=moved.secret_commands,
        )


def _carry(moved: Moved, before: PlaceSide, after: PlaceSide) -> Iterator[Step]:
    on = ("--on", after.place, *moved.options)
    if not moved.begun:
        trial = ("--name", f"{moved.run}-trial", "--max-hours", f"{TRIAL_HOURS:g}")
        yield Step(
            title="Look at what would be sent", commands=(_line("tonnage", "run", moved.target, *on, "--dry-run"),)
        )
        yield Step(title="Try it for a short while", commands=(_line("tonnage", "run", moved.target, *on, *trial),))
        yield Step(title="Carry it out", commands=(_line("tonnage", "run", moved.target, *on),))
        return
    if moved.alive:
        yield Step(title=f"Let the run save and end at {before.place}", commands=(_line("tonnage", "stop", moved.run),))
    yield Step(
        title=f"Go on at {after.place} from the newest checkpoint",
        commands=(_line("tonnage", "resume", moved.run, *on),),
        note="this ends what is left at the old place and brings what was saved",
    )


def _leave(moved: Moved, before: PlaceSide) -> Iterator[Step]:
    if before.place != LOCAL:
        yield Step(
            title=f"See that nothing is left at {before.place}",
            commands=(_line("tonnage", "places", "orphans", "--end"),),
            note="copies at the old place are removed by hand, once the new ones have been read",
        )
    verb = ("resume", moved.run) if moved.begun else ("run", moved.target)
    yield Step(title="The way back", commands=(_line("tonnage", *verb, "--on", before.place),))


def _line(*words: str) -> str:
    return shlex.join(words)
