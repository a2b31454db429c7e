"""A migration plan from one alternative to another: tasks with effort ranges, their order and dates, the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from shlex import quote
from typing import Final, Literal

from tonnage.comparison.computed import WorkDemand
from tonnage.comparison.request import Alternative, Move
from tonnage.comparison.tasks import HoursRange, Template, Templates
from tonnage.values import dataclass

End = Literal["low", "likely", "high"]
ENDS: Final[tuple[End, ...]] = ("low", "likely", "high")
WORKING_DAYS: Final = 5
VALIDATION: Final = {"train": "training", "tabular": "training", "serve": "inference", "batch": "inference"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of one move. `after`: ids of the tasks that must be done."""

    id: str
    phase: str
    title: str
    hours: HoursRange
    wait_days: HoursRange | None
    after: tuple[str, ...]
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """When a task runs, in working days from the start of the move (fractions of a day)."""

    start_day: float
    end_day: float  # waiting included
    worked_until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The whole plan. `slots`: for each end of the effort ranges, by task id."""

    move: Move
    origin: str
    target: str
    phases: tuple[tuple[str, str, str], ...]
    tasks: tuple[Task, ...]
    slots: Mapping[End, Mapping[str, Slot]]
    critical: tuple[str, ...]
    rollback: tuple[str, ...]
    source: str
    start: date

    @property
    def hours(self) -> HoursRange:
        return HoursRange(
            low=sum(one.hours.low for one in self.tasks),
            likely=sum(one.hours.likely for one in self.tasks),
            high=sum(one.hours.high for one in self.tasks),
        )

    def working_days(self, end: End = "likely") -> float:
        """From the first task's start to the last one's end."""
        return max((slot.end_day for slot in self.slots[end].values()), default=0.0)

    def weeks(self, end: End = "likely") -> float:
        return self.working_days(end) / WORKING_DAYS

    def dates(self, task: str, end: End = "likely") -> tuple[date, date]:
        """The first and the last calendar day of a task; weekends are skipped."""
        slot = self.slots[end][task]
        last = max(slot.start_day, slot.end_day - 1e-9)
        return working_date(self.start, int(slot.start_day)), working_date(self.start, int(last))


def working_date(start: date, days: int) -> date:
    """The date so many working days (Monday to Friday) after `start`.

    >>> working_date(date(2026, 12, 4), 1), working_date(date(2026, 12, 5), 0)
    (datetime.date(2026, 12, 7), datetime.date(2026, 12, 7))
    """
    while start.weekday() >= WORKING_DAYS:
        start += timedelta(days=1)
    weeks, rest = divmod(start.weekday() + days, WORKING_DAYS)
    return start - timedelta(days=start.weekday()) + timedelta(days=7 * weeks + rest)


def plan_migration(
    move: Move,
    alternatives: Mapping[str, Alternative],
    works: Sequence[WorkDemand],
    templates: Templates,
    *,
    today: date,
    compare_file: str,
) -> Migration:
    """The plan of one move; it starts on its own day, else on the first working day from `today`."""
    origin, target = alternatives[move.origin], alternatives[move.target]
    tasks = _make_tasks(templates, move, origin, target, works, compare_file)
    slots = {end: schedule(tasks, end, people=move.people, hours_per_day=move.hours_per_day) for end in ENDS}
    return Migration(
        move=move,
        origin=origin.title,
        target=target.title,
        phases=tuple(
            (name, one.title, one.purpose)
            for name, one in templates.phases.items()
            if any(task.phase == name for task in tasks)
        ),
        tasks=tasks,
        slots=slots,
        critical=_critical(tasks, slots["likely"]),
        rollback=tuple(_fill(line, origin, target, None, compare_file) for line in templates.rollback),
        source=templates.source,
        start=working_date(move.start or today, 0),
    )


def _make_tasks(
    templates: Templates,
    move: Move,
    origin: Alternative,
    target: Alternative,
    works: Sequence[WorkDemand],
    compare_file: str,
) -> tuple[Task, ...]:
    """Every template that applies, once or for each workload; dependencies on what does not apply fall through."""
    made: dict[str, tuple[str, ...]] = {}
    out: list[tuple[Template, WorkDemand | None]] = []
    for template in templates.tasks.values():
        if not _applies(template, move, origin, target):
            continue
        named = [one for one in works if not template.when.kinds or one.workload.kind in template.when.kinds]
        if template.per == "workload":
            made[template.name] = tuple(f"{template.name}:{one.name}" for one in named)
            out += [(template, one) for one in named]
        elif named:
            made[template.name] = (template.name,)
            out.append((template, None))
    tasks = [_task(template, move, one, made, templates, origin, target, compare_file) for template, one in out]
    return tuple(replace(task, after=_direct(task, {one.id: one for one in tasks})) for task in tasks)


def _direct(task: Task, tasks: Mapping[str, Task]) -> tuple[str, ...]:
    """What a task waits for, less what another of these waits for anyway."""
    implied = {far for before in task.after for far in _ancestors(before, tasks)}
    return tuple(before for before in task.after if before not in implied)


def _ancestors(name: str, tasks: Mapping[str, Task]) -> set[str]:
    out: set[str] = set()
    left = list(tasks[name].after)
    while left:
        one = left.pop()
        if one not in out:
            out.add(one)
            left += tasks[one].after
    return out


def _applies(template: Template, move: Move, origin: Alternative, target: Alternative) -> bool:
    """Whether a move has that task: by what it leaves and enters, what is used today, and what is stated of it."""
    when = template.when
    tags, both = set(target.profile.tags), set(target.profile.tags) & set(origin.profile.tags)
    return (
        (not when.to_tags or bool(tags & set(when.to_tags)))
        and not tags & set(when.not_to_tags)
        and set(when.both_tags) <= both
        and not both & set(when.not_both_tags)
        and when.elsewhere in (None, moves_clouds(origin, target))
        and (when.uses is None or move.uses is None or when.uses in move.uses)
        and (template.times is None or bool(getattr(move, template.times)))
    )


def moves_clouds(origin: Alternative, target: Alternative) -> bool:
    """Whether data and accounts have to change hands: no cloud of the one is one of the other."""
    here, there = origin.clouds, target.clouds
    if here is None or there is None:
        return "on-premise" in ((here or frozenset()) | (there or frozenset()))
    return not here & there


def _scaled(span: HoursRange, template: Template, move: Move) -> HoursRange:
    number = 1.0 if template.times is None else float(getattr(move, template.times))
    return HoursRange(low=span.low * number, likely=span.likely * number, high=span.high * number)


def _task(
    template: Template,
    move: Move,
    work: WorkDemand | None,
    made: Mapping[str, tuple[str, ...]],
    templates: Templates,
    origin: Alternative,
    target: Alternative,
    compare_file: str,
) -> Task:
    return Task(
        id=template.name if work is None else f"{template.name}:{work.name}",
        phase=template.phase,
        title=_fill(template.title, origin, target, work, compare_file),
        hours=_scaled(template.hours, template, move),
        wait_days=None if template.wait_days is None else _scaled(template.wait_days, template, move),
        after=_before(template, work, made, templates),
        checks=tuple(_fill(check, origin, target, work, compare_file, quoted=quote) for check in template.checks),
    )


def _before(
    template: Template, work: WorkDemand | None, made: Mapping[str, tuple[str, ...]], templates: Templates
) -> tuple[str, ...]:
    """What must be done first: of tasks by workload its own one, or all; through those that do not apply."""
    out: dict[str, None] = {}
    for name in template.after:
        if not made.get(name):
            out.update(dict.fromkeys(_before(templates.tasks[name], work, made, templates)))
            continue
        own = f"{name}:{work.name}" if work is not None else ""
        out.update(dict.fromkeys((own,) if own in made[name] else made[name]))
    return tuple(out)


def _fill(
    text: str,
    origin: Alternative,
    target: Alternative,
    work: WorkDemand | None,
    compare_file: str,
    quoted: Callable[[str], str] = str,
) -> str:
    """The placeholders of a template replaced; other braces stay. `quoted` makes a value safe in a shell."""
    values = {"from": origin.title, "to": target.title, "origin": origin.name, "target": target.name,
              "compare_file": compare_file}  # fmt: skip
    if work is not None:
        values |= {
            "workload": work.name,
            "workload_file": work.workload.file or f"{work.name}.tonnage.yaml",
            "validation": VALIDATION[work.workload.kind],
        }
    for name, value in values.items():
        text = text.replace("{" + name + "}", quoted(value))
    return text.replace("{plan_options}", _plan_options(target))


def _plan_options(target: Alternative) -> str:
    """The options of `tonnage plan` that keep it to the target; the values are names of profiles, safe in a shell."""
    scope = target.profile.scope
    flags = [f"--platform {name}" for name in scope.platforms]
    flags += [f"--provider {name}" for name in target.providers or scope.providers]
    return " ".join([*flags, *(f"--gpu {quote(gpu)}" for gpu in target.gpus)])


def schedule(tasks: Sequence[Task], end: End, *, people: int, hours_per_day: float) -> dict[str, Slot]:
    """When each task runs: ready tasks with the longest way behind them first, one person a task, waits without people.

    >>> one = HoursRange(low=1, likely=6, high=12)
    >>> tasks = [Task(id=name, phase="", title="", hours=one, wait_days=None, after=after, checks=())
    ...          for name, after in (("a", ()), ("b", ()), ("c", ("a", "b")))]
    >>> found = schedule(tasks, "likely", people=1, hours_per_day=6)
    >>> [(name, slot.start_day, slot.end_day) for name, slot in found.items()]
    [('a', 0.0, 1.0), ('b', 1.0, 2.0), ('c', 2.0, 3.0)]
    """
    tails = _tails(tasks, end, hours_per_day)
    order = {task.id: place for place, task in enumerate(tasks)}
    free = [0.0] * people
    out: dict[str, Slot] = {}
    waiting = list(tasks)
    while waiting:
        ready = [task for task in waiting if all(before in out for before in task.after)]
        person = min(range(people), key=lambda one: (free[one], one))
        starts = {task.id: max([free[person], *(out[before].end_day for before in task.after)]) for task in ready}
        task = min(ready, key=lambda one: (starts[one.id], -tails[one.id], order[one.id]))
        busy = getattr(task.hours, end) / hours_per_day
        wait = getattr(task.wait_days, end) if task.wait_days else 0.0
        start = starts[task.id]
        free[person] = start + busy
        out[task.id] = Slot(start_day=start, end_day=start + busy + wait, worked_until=start + busy)
        waiting.remove(task)
    return out


def _length(task: Task, end: End, hours_per_day: float) -> float:
    return float(getattr(task.hours, end)) / hours_per_day + (getattr(task.wait_days, end) if task.wait_days else 0.0)


def _tails(tasks: Sequence[Task], end: End, hours_per_day: float) -> dict[str, float]:
    """Days from the start of each task to the end of the move, were people without limit."""
    after: dict[str, list[Task]] = {task.id: [] for task in tasks}
    for task in tasks:
        for before in task.after:
            after[before].append(task)
    out: dict[str, float] = {}

    def tail(task: Task) -> float:
        if task.id not in out:
            out[task.id] = _length(task, end, hours_per_day) + max((tail(one) for one in after[task.id]), default=0.0)
        return out[task.id]

    for task in tasks:
        tail(task)
    return out


def _critical(tasks: Sequence[Task], slots: Mapping[str, Slot]) -> tuple[str, ...]:
    """The chain of tasks, last to first, each held up by the one before it (a predecessor or a busy person)."""
    if not tasks:
        return ()
    place = max(tasks, key=lambda task: (slots[task.id].end_day, task.id))
    chain = [place.id]
    by_id = {task.id: task for task in tasks}
    while True:
        task = by_id[chain[-1]]
        start = slots[task.id].start_day
        held = [one for one in task.after if abs(slots[one].end_day - start) < 1e-9]
        held = held or [
            one for one, slot in slots.items() if abs(slot.worked_until - start) < 1e-9 and one not in chain
        ]
        if not held:
            break
        chain.append(min(held))
    return tuple(reversed(chain))
