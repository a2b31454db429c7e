"""Migration plans: order, people, dates, checks, exports."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from shutil import which

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.migration import ENDS, Migration, Task, schedule
from tonnage.comparison.tasks import HoursRange, load_templates, parse_templates
from tonnage.errors import WorkloadError
from tonnage.reports.comparison.charts import gantt_mermaid
from tonnage.reports.comparison.moving import migration_calendar, migration_checklist, migration_csv

PAIRS = [("self-managed-aws", "databricks"), ("databricks", "self-managed-aws"), ("sagemaker", "databricks"),
         ("databricks", "bedrock"), ("bedrock", "kubernetes")]  # fmt: skip


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def migration(request: pytest.FixtureRequest, compared: Callable[..., Comparison], standard: str) -> Migration:
    origin, target = request.param
    text = standard.replace("- sagemaker", "- sagemaker\n  - bedrock\n  - kubernetes")
    text = text.replace("from: self-managed-aws, to: databricks", f"from: {origin}, to: {target}")
    found = compared(text).migration
    assert found is not None
    return found


def test_nothing_starts_before_what_it_waits_for(migration: Migration) -> None:
    """Every dependency is a task of the plan and has ended; at no time are more people busy than there are."""
    for end in ENDS:
        slots = migration.slots[end]
        for task in migration.tasks:
            for before in task.after:
                assert slots[before].end_day <= slots[task.id].start_day + 1e-9
        for task in migration.tasks:
            at = slots[task.id].start_day + 1e-6
            busy = [one for one in slots.values() if one.start_day <= at < one.worked_until]
            assert len(busy) <= migration.move.people


def test_more_effort_takes_longer(migration: Migration) -> None:
    """Low, likely, high are in order, and the longest way ends with the plan."""
    weeks = [migration.weeks(end) for end in ENDS]
    assert weeks == sorted(weeks)
    last = max(migration.slots["likely"].values(), key=lambda slot: slot.end_day)
    assert migration.slots["likely"][migration.critical[-1]].end_day == last.end_day
    assert migration.slots["likely"][migration.critical[0]].start_day == 0.0


def test_a_plan_has_a_parallel_run_checks_and_a_way_back(migration: Migration) -> None:
    """Fold-over waits for a parallel run with checks that a shell can read; no placeholder is left."""
    tasks = {task.id: task for task in migration.tasks}
    assert any(task.id.startswith("parallel-run") and task.wait_days for task in migration.tasks)
    assert tasks["cut-over"].after == ("accept",)
    checks = [check for task in migration.tasks for check in task.checks]
    assert checks
    for text in [*checks, *migration.rollback, *(task.title for task in migration.tasks)]:
        assert "{" not in text
    for check in checks:
        assert shlex.split(check)
    assert migration.rollback


def test_tags_choose_the_tasks(compared: Callable[..., Comparison]) -> None:
    """A move to Databricks sets up a workspace; one to machines builds images."""
    found = compared().migration
    assert found is not None
    names = {task.id for task in found.tasks}
    assert {"workspace", "tables", "convert-train:tune"} <= names
    assert not {"machine-images", "cluster", "model-access", "convert-service:tune"} & names


def test_two_people_are_no_slower_than_one(compared: Callable[..., Comparison]) -> None:
    """With more people the plan is as long or shorter."""
    found = compared().migration
    assert found is not None
    spans = [
        max(slot.end_day for slot in schedule(found.tasks, "likely", people=people, hours_per_day=6).values())
        for people in (1, 2, 4)
    ]
    assert spans[0] > spans[1] >= spans[2]


def test_the_schedule_by_hand() -> None:
    """Two people, a wait: b waits two days without anyone, c follows it."""
    hours = HoursRange(low=6, likely=6, high=6)
    tasks = [
        Task(id="a", phase="", title="", hours=hours, wait_days=None, after=(), checks=()),
        Task(
            id="b", phase="", title="", hours=hours, wait_days=HoursRange(low=2, likely=2, high=2), after=(), checks=()
        ),
        Task(id="c", phase="", title="", hours=hours, wait_days=None, after=("a", "b"), checks=()),
    ]
    found = schedule(tasks, "likely", people=2, hours_per_day=6)
    assert {name: (slot.start_day, slot.end_day) for name, slot in found.items()} == {
        "b": (0.0, 3.0), "a": (0.0, 1.0), "c": (3.0, 4.0),
    }  # fmt: skip


def test_csv_holds_every_task(migration: Migration) -> None:
    """One row a task, dates in order, weekends free."""
    rows = list(csv.DictReader(io.StringIO(migration_csv(migration))))
    assert [row["id"] for row in rows] == [task.id for task in migration.tasks]
    for row in rows:
        first, last, slow = (date.fromisoformat(row[key]) for key in ("start", "end", "end_if_slow"))
        assert first <= last <= slow
        assert first.weekday() < 5
        assert last.weekday() < 5


def test_calendar_is_well_formed(compared: Callable[..., Comparison], standard: str) -> None:
    """RFC 5545: CRLF, at most 75 bytes a line, one event a task, commas and semicolons escaped."""
    found = compared(
        standard.replace('title: "Databricks <b>"', 'title: "Däta; bricks, große Plattform 🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀"')
    )
    assert found.migration is not None
    text = migration_calendar(found.migration, found.as_of)
    lines = text.split("\r\n")
    assert text.endswith("END:VCALENDAR\r\n")
    assert "\n" not in text.replace("\r\n", "")
    assert all(len(line.encode()) <= 75 for line in lines)
    unfolded = text.replace("\r\n ", "")
    assert unfolded.count("BEGIN:VEVENT") == unfolded.count("END:VEVENT") == len(found.migration.tasks)
    assert "Däta\\; bricks\\, große Plattform 🚀" in unfolded


def test_the_gantt_chart_of_markdown(migration: Migration) -> None:
    """One line a task, with one colon, and the critical ones marked."""
    lines = [line for line in gantt_mermaid(migration).splitlines() if " :" in line]
    assert len(lines) == len(migration.tasks)
    assert all(line.count(":") == 1 for line in lines)
    assert sum(":crit, " in line for line in lines) == len(migration.critical)


def test_checklist_has_a_box_a_task(migration: Migration) -> None:
    """Markdown check-boxes by phase."""
    text = migration_checklist(migration)
    assert text.count("- [ ] ") == len(migration.tasks)


def test_a_hostile_name_stays_one_word_in_a_check(compared: Callable[..., Comparison], standard: str) -> None:
    """Names in commands are quoted."""
    text = standard.replace("tune.yaml, jobs", "tune.yaml, name: tune, jobs")
    found = compared(text)
    from dataclasses import replace

    from tonnage.comparison.migration import plan_migration

    assert found.request.move is not None
    work = replace(found.works[0], workload=replace(found.works[0].workload, file="a; rm -rf b.yaml"))
    plan = plan_migration(
        found.request.move, {one.name: one for one in found.request.alternatives}, [work], load_templates(),
        today=found.as_of.date(), compare_file="x.yaml",
    )  # fmt: skip
    check = next(task for task in plan.tasks if task.id.startswith("plan-target")).checks[0]
    assert "a; rm -rf b.yaml" in shlex.split(check)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {phase: p, title: A, hours: {low: 1, likely: 2, high: 3}, after: [b]}", "no task is named 'b'"),
        (
            "a: {name: b, phase: p, title: A, hours: {low: 1, likely: 2, high: 3}}",
            "default.yaml:6: `tasks.a.name`: unknown key 'name'",
        ),
        ("a: {phase: q, title: A, hours: {low: 1, likely: 2, high: 3}}", "no phase is named 'q'"),
        ("a: {phase: p, title: A, hours: {low: 3, likely: 2, high: 3}}", "is not low <= likely <= high"),
        (
            "a: {phase: p, title: A, hours: {low: 1, likely: 2, high: 3}, after: [b]}\n"
            "  b: {phase: p, title: B, hours: {low: 1, likely: 2, high: 3}, after: [a]}",
            "waits for itself",
        ),
    ],
)
def test_faulty_templates_are_reported(text: str, said: str) -> None:
    """Unknown names, hours out of order and cycles."""
    head = "name: t\nsource: s\nphases: {p: {title: P, purpose: p}}\nrollback: [back]\ntasks:\n  "
    with pytest.raises(WorkloadError, match=said):
        parse_templates(head + text + "\n")


@pytest.mark.skipif(which("jq") is None or which("bash") is None, reason="the checks are for a shell with jq")
@pytest.mark.parametrize(
    ("billed", "error_pct", "met"),
    [(10.9, 20.0, [True, True]), (11.1, 20.1, [False, False]), (10.0, None, [False, True])],
)
def test_checks_can_fail(
    compared: Callable[..., Comparison], tmp_path: Path, billed: float, error_pct: float | None, met: list[bool]
) -> None:
    """The bill may be a tenth above the plan, the median error 20 %; beyond it, or with nothing read, it is not met."""
    migration = compared().migration
    assert migration is not None
    task = next(task for task in migration.tasks if task.id == "parallel-run:tune")
    metrics = [] if error_pct is None else [{"median_abs_pct": error_pct}]
    made = {
        "tune-validated.json": {"rows": len(metrics), "metrics": metrics},
        "tune.json": {"options": [{"cost_usd": {"value": 10.0}}]},
        "tune-billed-usd.json": billed,
    }
    (tmp_path / "target").mkdir()
    for name, content in made.items():
        (tmp_path / "target" / name).write_text(json.dumps(content))
    checks = [check for check in task.checks if check.startswith("jq")]
    done = [subprocess.run(["bash", "-c", check], cwd=tmp_path, capture_output=True, check=False) for check in checks]
    assert [one.returncode == 0 for one in done] == met
