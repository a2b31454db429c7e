"""The steps of a move, in their order. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.relocation.relocation import Copied, PlaceSide, Step
from tonnage.values import dataclass

LOCAL: Final = "local"
TRIAL_HOURS: Final = 0.25


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
