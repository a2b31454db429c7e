"""Task templates of a migration, as data: read, checked for unknown names and cycles."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Final, Literal

from pydantic import Field

from tonnage.comparison.profile_file import WorkloadKind
from tonnage.comparison.request import Used
from tonnage.comparison.user_files import Name, Names, Text, parse_entries, unknown
from tonnage.values import dataclass
from tonnage.workload.file.fields import Flag, PositiveOrZero, StrictModel, Words
from tonnage.workload.file.problems import Problem, raise_problems

PAGE: Final = "docs/compare.md"
Times = Literal["data_tb", "pipelines"]


class HoursRange(StrictModel):
    """Low, likely, high."""

    low: PositiveOrZero
    likely: PositiveOrZero
    high: PositiveOrZero


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One task before it is made of a certain move. `wait_days`: working days that pass without work.

    `times`: hours and waiting are of one of these, and the task is there where their number is stated. `elsewhere`:
    whether it belongs to a move to another cloud (True), within one (False) or to both (None). `uses`: it belongs to
    those who use that today.
    """

    name: str
    phase: str
    title: str
    hours: HoursRange
    wait_days: HoursRange | None
    after: tuple[str, ...]
    per_workload: bool
    kinds: tuple[str, ...]
    to_tags: tuple[str, ...]
    not_to_tags: tuple[str, ...]
    both_tags: tuple[str, ...]
    not_both_tags: tuple[str, ...]
    elsewhere: bool | None
    uses: str | None
    times: Times | None
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """A whole set: phases in order, tasks, and the way back."""

    source: str
    phases: tuple[tuple[str, str, str], ...]  # name, title, purpose
    tasks: Mapping[str, Template]
    rollback: tuple[str, ...]


class WhenEntry(StrictModel):
    kinds: Annotated[tuple[WorkloadKind, ...], Field(strict=False)] = ()
    to_tags: Names = ()
    not_to_tags: Names = ()
    both_tags: Names = ()
    not_both_tags: Names = ()
    elsewhere: Flag | None = None
    uses: Used | None = None


class TemplateEntry(StrictModel):
    phase: Name
    title: Text
    hours: HoursRange
    wait_days: HoursRange | None = None
    after: Names = ()
    per: Literal["workload"] | None = None
    times: Times | None = None
    when: WhenEntry = Field(default_factory=WhenEntry)
    checks: Words = ()


class PhaseEntry(StrictModel):
    title: Text
    purpose: Text


class TasksFile(StrictModel):
    name: Name
    source: Text
    phases: dict[Name, PhaseEntry]
    tasks: dict[Name, TemplateEntry]
    rollback: Words


@lru_cache(maxsize=1)
def load_templates() -> Templates:
    """The packaged templates."""
    return parse_templates(files("tonnage.comparison").joinpath("data/tasks/default.yaml").read_text("utf-8"))


def parse_templates(text: str, *, file: str | None = "tasks/default.yaml") -> Templates:
    """Templates of a text. WorkloadError on an unknown phase or task, hours out of order, or a cycle."""
    entries, document = parse_entries(text, TasksFile, file=file, page=PAGE)
    raise_problems(_problems(entries), document)
    return Templates(
        source=entries.source,
        phases=tuple((name, one.title, one.purpose) for name, one in entries.phases.items()),
        tasks={name: _template(name, one) for name, one in entries.tasks.items()},
        rollback=entries.rollback,
    )


def _problems(entries: TasksFile) -> list[Problem]:
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


def _circle(entries: TasksFile) -> str | None:
    """A task that is left when every task whose predecessors are done has been taken away."""
    left = dict(entries.tasks)
    while ready := [name for name, one in left.items() if not set(one.after) & left.keys()]:
        for name in ready:
            del left[name]
    return next(iter(left), None)


def _template(name: str, entry: TemplateEntry) -> Template:
    return Template(
        name=name,
        phase=entry.phase,
        title=entry.title,
        hours=entry.hours,
        wait_days=entry.wait_days,
        after=entry.after,
        per_workload=entry.per == "workload",
        kinds=entry.when.kinds,
        to_tags=entry.when.to_tags,
        not_to_tags=entry.when.not_to_tags,
        both_tags=entry.when.both_tags,
        not_both_tags=entry.when.not_both_tags,
        elsewhere=entry.when.elsewhere,
        uses=entry.when.uses,
        times=entry.times,
        checks=entry.checks,
    )
