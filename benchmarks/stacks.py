"""Well-known stacks: what each published, and what the plan of the same job in the same layout says.

The rows stand in tests/data/stacks.csv, their workload files in tests/data/stacks; each is
`tonnage size FILE --memory-margin 0`. `python benchmarks/stacks.py` prints the table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tonnage import api
from tonnage.planning.reasons.notes import AllocatorNote
from tonnage.planning.sizes import SizeReport, SizeRow
from tonnage.reports.reasons import miss_words

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "data" / "stacks.csv"
WORKLOADS = ROOT / "tests" / "data" / "stacks"
AS_OF = "2026-11-22"
UNITS = {
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "sequences_per_s": "sequences/s",
    "output_tokens_per_s": "output tokens/s",
    "output_tokens_per_s_per_gpu": "output tokens/s/GPU",
    "requests_per_s": "requests/s",
    "memory_reserved_gib": "GiB, reserved",
    "memory_device_gib": "GiB, device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One published figure. `expected_miss`: the ratio planned / published last seen beyond the tolerance, «refused»
    where the plan said that it does not fit, "" where it holds."""

    name: str
    program: str
    workload: Path
    metric: str
    published: float
    tolerance_fraction: float
    why: str  # that tolerance
    expected_miss: str
    in_facts: bool
    source: str
    read_on: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan says. `value` None: it refuses, with what it needs in `refusal`."""

    value: float | None
    low: float = 0.0
    high: float = 0.0
    refusal: str = ""

    def ratio(self, published: float) -> float | None:
        return None if self.value is None else self.value / published


def load_stacks() -> list[Stack]:
    """Every row, in the order of the table."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return [_parse(row) for row in csv.DictReader(stream)]


def _parse(row: dict[str, str]) -> Stack:
    return Stack(
        name=row["name"],
        program=row["program"],
        workload=WORKLOADS / f"{row['workload']}.tonnage.yaml",
        metric=row["metric"],
        published=float(row["published"]),
        tolerance_fraction=float(row["tolerance_pct"]) / 100.0,
        why=row["why"],
        expected_miss=row["expected_miss"],
        in_facts=row["in_facts"] == "y",
        source=row["source"],
        read_on=row["read_on"],
        note=row["note"],
    )


def plan_stack(stack: Stack) -> Planned:
    """The planned figure of `stack`, by the path of `tonnage size`."""
    report = _sized(stack.workload)
    if not report.rows:
        miss = report.misses[0]
        return Planned(value=None, refusal=miss_words(miss.miss).clause)
    value, low, high = _figure(report.rows[0], stack.metric)
    return Planned(value=value, low=low, high=high)


@cache
def _sized(workload: Path) -> SizeReport:
    """The report of one file; several rows may be of one run."""
    ran = api.load_workload(workload, as_of=AS_OF)
    ran = replace(ran, constraints=replace(ran.constraints, accept_risk=("memory",)))  # it did run: it held
    return api.size(ran, memory_margin=0.0).size


def _figure(row: SizeRow, metric: str) -> tuple[float, float, float]:
    """(value, low, high) of `metric` in one row of the report. Both readings of memory show blocks that the allocator
    keeps beside what must fit; the interval is that of what must fit."""
    run, gpus = row.run, row.gpu_count * row.nodes
    if metric.startswith("memory_"):
        memory = run.memory_gib
        outside = dict(run.memory_parts_gib).get("context", 0.0) if metric == "memory_reserved_gib" else 0.0
        read = memory.value - outside + sum(note.held_gib for note in run.notes if isinstance(note, AllocatorNote))
        return read, read * memory.low / memory.value, read * memory.high / memory.value
    name = metric.removesuffix("_per_gpu").replace("sequences", "samples")
    rate = dict(run.rates)[name]
    share = gpus if metric.endswith("_per_gpu") else 1.0
    return rate.value / share, rate.low / share, rate.high / share


def within(stack: Stack, planned: Planned) -> bool:
    """Whether the plan holds the row's tolerance."""
    ratio = planned.ratio(stack.published)
    return ratio is not None and abs(ratio - 1.0) <= stack.tolerance_fraction


def stack_table() -> Iterator[str]:
    """The rows as a Markdown table: published, planned, their ratio, in the 80 % interval or not."""
    yield "| stack | figure | published | planned | ratio | in the interval | source |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for stack in load_stacks():
        planned = plan_stack(stack)
        ratio = planned.ratio(stack.published)
        inside = "yes" if planned.low <= stack.published <= planned.high else "no"
        name = f"{stack.name} (in the fact tables)" if stack.in_facts else stack.name
        said = "refused" if planned.value is None else f"{planned.value:,.4g}"
        yield (
            f"| {name} | {UNITS[stack.metric]} | {stack.published:,.4g} | {said} | "
            f"{'' if ratio is None else f'{ratio:.2f}'} | {'' if ratio is None else inside} | {stack.source} |"
        )


def missed_list() -> Iterator[str]:
    """Each row beyond its tolerance, with what is known of the reason."""
    for stack in load_stacks():
        planned = plan_stack(stack)
        if within(stack, planned):
            continue
        ratio = planned.ratio(stack.published)
        said = planned.refusal if ratio is None else f"{ratio:.2f}, tolerance {stack.tolerance_fraction:.0%}"
        yield f"- beyond its tolerance: {stack.name} ({said})" + (f": {stack.note}" if stack.note else "")


if __name__ == "__main__":
    print("\n".join([*stack_table(), "", *missed_list()]))
