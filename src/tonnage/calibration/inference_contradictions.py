"""Doubts about measured inference rows from other documents: a table that two of them contradict, who agree.

Two that disagree do not tell which of them is wrong. Where a third printed the same configurations of the same program
on the same device, and is with one of them, the other ran on a device in another state (a card at its base clock, say)
or did other work, which no column states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, islice
from math import exp, log
from statistics import median
from typing import Any, Final

from tonnage.calibration.rows import InferenceRow, publication
from tonnage.values import dataclass

APART: Final = 1.5  # times as long, from which on documents contradict one another (their revisions differ by 1.3)
TOGETHER: Final = 1.25  # within which two agree
FEWEST_SHARED: Final = 4  # configurations; fewer may lie so by chance
MOST_ROWS: Final = 200_000  # of a file that is looked through; a longer one is a stream
PASS_KINDS: Final = ("encoder", "vision")
TIMES: Final = ("latency_ms_mean", "latency_ms_p50")
RATES: Final = ("sequences_per_s", "samples_per_s")

Configuration = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ProgramTable:
    """What one document prints of one program on one GPU."""

    source: str
    gpu: str
    program: tuple[str, ...]


def doubt_contradicted(read: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What `read` gives, rows of tables that two others contradict marked as suspect. It is read twice."""
    rows = (item for item in islice(read(), MOST_ROWS) if isinstance(item, InferenceRow))
    doubted = contradicted_tables(rows)
    for item in read():
        reason = (
            doubted.get(program_table(item)) if isinstance(item, InferenceRow) and item.kind in PASS_KINDS else None
        )
        yield replace(item, quality="suspect", doubt=item.doubt or reason) if reason else item


def program_table(row: InferenceRow) -> ProgramTable:
    """The table that a row is in."""
    return ProgramTable(row.source, row.gpu, (row.engine, row.compiled, row.traced))


def contradicted_tables(rows: Iterable[InferenceRow]) -> dict[ProgramTable, str]:
    """Tables of whole passes that two others contradict, of different publishers, which agree; with the reason."""
    tables: defaultdict[ProgramTable, defaultdict[Configuration, list[float]]]
    tables = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.quality != "suspect" and (seconds := _seconds(row)):
            tables[program_table(row)][_configuration(row)].append(seconds)
    printed = {one: {at: median(values) for at, values in found.items()} for one, found in tables.items()}
    alike: defaultdict[tuple[object, ...], list[ProgramTable]] = defaultdict(list)
    for one in printed:
        alike[(one.gpu, one.program)].append(one)
    found: dict[ProgramTable, str] = {}
    for group in alike.values():
        for table in group:
            others = [other for other in group if other != table]
            reason = next(
                filter(None, (_contradicted(table, *pair, printed) for pair in combinations(others, 2))), None
            )
            if reason:
                found[table] = reason
    return found


def _contradicted(
    table: ProgramTable,
    first: ProgramTable,
    second: ProgramTable,
    printed: Mapping[ProgramTable, Mapping[Configuration, float]],
) -> str | None:
    if publication(first.source) == publication(second.source):
        return None
    between, *apart = (
        _ratio(printed[one], printed[other]) for one, other in ((first, second), (table, first), (table, second))
    )
    if between is None or max(between, 1.0 / between) > TOGETHER:
        return None
    if any(one is None for one in apart):
        return None
    least = min(abs(log(one)) for one in apart if one is not None)
    if least < log(APART) or len({one > 1.0 for one in apart if one is not None}) > 1:
        return None
    slower = "longer" if (apart[0] or 0.0) > 1.0 else "shorter"
    return (
        f"two documents ({first.source}; {second.source}) print the same configurations of this program on this GPU, "
        f"agree within {TOGETHER - 1.0:.0%}, and this table takes at least {exp(least):.1f} times {slower} than either"
    )


def _ratio(one: Mapping[Configuration, float], other: Mapping[Configuration, float]) -> float | None:
    """How much longer `one` takes, the median over shared configurations; None where they share too few."""
    shared = [one[at] / other[at] for at in one if at in other]
    return median(shared) if len(shared) >= FEWEST_SHARED else None


def _configuration(row: InferenceRow) -> Configuration:
    return (row.model, row.n_gpus, row.tp, row.precision, row.weights_quant, row.batch_size, row.concurrency,
            row.input_len, row.padding)  # fmt: skip


def _seconds(row: InferenceRow) -> float | None:
    """Seconds of a batch; None for what is no mean time and no rate of one."""
    if row.kind not in PASS_KINDS or row.value <= 0 or not row.batch_size:
        return None
    if row.metric in TIMES and row.start_up != "y":
        return row.value / 1e3
    return row.batch_size / row.value if row.metric in RATES else None
