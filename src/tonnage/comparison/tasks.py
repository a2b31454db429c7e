"""Task templates of a migration, as data: read, checked for unknown names and cycles."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Final, Literal

from pydantic import Field

from tonnage.comparison.profile_file import WorkloadKind
from tonnage.comparison.request import Used
from tonnage.comparison.user_files import Name, Named, Names, Text, parse_entries, unknown
from tonnage.workload.file.fields import Flag, PositiveOrZero, StrictModel, Words
from tonnage.workload.file.problems import Problem, raise_problems

PAGE: Final = "docs/compare.md"
Times = Literal["data_tb", "pipelines"]


class HoursRange(StrictModel):
    """Low, likely, high."""

    low: PositiveOrZero
    likely: PositiveOrZero
    high: PositiveOrZero


class TaskScope(StrictModel):
    """What a task is of. `elsewhere`: whether it belongs to a move to another cloud (True), within one (False) or to
    both (None). `uses`: it belongs to those who use that today."""

    kinds: Annotated[tuple[WorkloadKind, ...], Field(strict=False)] = ()
    to_tags: Names = ()
    not_to_tags: Names = ()
    both_tags: Names = ()
    not_both_tags: Names = ()
    elsewhere: Flag | None = None
    uses: Used | None = None


class Template(StrictModel):
    """One task before it is made of a certain move. `wait_days`: working days that pass without work.

    `times`: hours and waiting are of one of these, and the task is there where their number is stated.
    """

    name: Name
    phase: Name
    title: Text
    hours: HoursRange
    wait_days: HoursRange | None = None
    after: Names = ()
    per: Literal["workload"] | None = None
    times: Times | None = None
    when: TaskScope = Field(default_factory=TaskScope)
    checks: Words = ()


class MigrationPhase(StrictModel):
    title: Text
    purpose: Text


class Templates(StrictModel):
    """A whole set: phases in order, tasks, and the way back."""

    name: Name
    source: Text
    phases: dict[Name, MigrationPhase]
    tasks: Named[Template]
    rollback: Words


@lru_cache(maxsize=1)
def load_templates() -> Templates:
    """The packaged templates."""
    return parse_templates(files("tonnage.comparison").joinpath("data/tasks/default.yaml").read_text("utf-8"))


def parse_templates(text: str, *, file: str | None = "tasks/default.yaml") -> Templates:
    """Templates of a text. WorkloadError on an unknown phase or task, hours out of order, or a cycle."""
    entries, document = parse_entries(text, Templates, file=file, page=PAGE)
    raise_problems(_problems(entries), document)
    return entries


def _problems(entries: Templates) -> list[Problem]:
    found = []
    for name, one in entries.tasks.items():
        path = ("tasks", name)
        if one.phase not in entries.phases:
            found.append(unknown((*path, "phase"), "phase", one.phase, entries.phases))
        found += [unknown((*path, "after"), "task", before, entries.tasks) for before in one.after
                  if before not in entries.tasks]  # fmt: skip
        for key in ("hours", "wait_days"):
            span: HoursRange | None = getattr(one, key)
            if span and not span.low <= span.likely <= span.high:
                found.append(Problem((*path, key), "is not low <= likely <= high", "order the three"))
    if not found and (circle := _circle(entries)):
        found.append(Problem(("tasks", circle), "waits for itself, through others", "remove one `after`"))
    return found


def _circle(entries: Templates) -> str | None:
    """A task that is left when every task whose predecessors are done has been taken away."""
    left = dict(entries.tasks)
    while ready := [name for name, one in left.items() if not set(one.after) & left.keys()]:
        for name in ready:
            del left[name]
    return next(iter(left), None)
