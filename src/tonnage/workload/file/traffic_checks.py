"""How the rate of a service moves, from its keys: a day's course, or the arrivals of a trace."""

from __future__ import annotations

import csv
import math
from itertools import pairwise
from pathlib import Path
from typing import Final

from tonnage.workload.file.job_fields import TrafficFields
from tonnage.workload.file.kinds import ServeFile, WorkloadFile
from tonnage.workload.file.problems import Problem
from tonnage.workload.jobs import Traffic

HOURS: Final = 24
HOUR_S: Final = 3600.0
HIGHEST_AT_H: Final = 15
BUSY_S: Final = 60  # the busiest span of a trace that stands for the busy rate
LONGEST_S: Final = 14 * 86_400
COLUMN: Final = "arrived_at"
_WAYS: Final = ("hourly", "peak_to_trough", "trace")


def read_traffic(file: WorkloadFile, folder: Path | None) -> tuple[Traffic | None, list[Problem]]:
    """The traffic of a service, None where the file states none, and what is wrong with it."""
    fields = file.serve.traffic if isinstance(file, ServeFile) else None
    if fields is None:
        return None, []
    given = [name for name in _WAYS if getattr(fields, name) is not None]
    if len(given) != 1:
        fault = "gives several courses of the rate" if given else "says nothing of the rate's course"
        return None, [Problem(("serve", "traffic"), fault, f"give one of {', '.join(_WAYS)}")]
    try:
        return _traffic(fields, folder or Path()), []
    except ValueError as error:
        return None, [Problem(("serve", "traffic", given[0]), str(error), _HINTS[given[0]])]


_HINTS: Final = {
    "hourly": "such as [1, 1, 2, 8, ...]", "peak_to_trough": "such as 10",
    "trace": f"a CSV file with a column {COLUMN}: seconds, in order",
}  # fmt: skip


def _traffic(fields: TrafficFields, folder: Path) -> Traffic:
    if fields.trace is not None:
        return traffic_of(_arrivals(folder / fields.trace), source=fields.trace)
    if fields.peak_to_trough is not None:
        return daily_wave(float(fields.peak_to_trough))
    values = fields.hourly or []
    if not any(values):
        raise ValueError("no hour has a request")
    return _day([float(value) / max(values) for value in values], "the stated course of a day")


def daily_wave(peak_to_trough: float) -> Traffic:
    """1 + a·cos over the day, highest at 15 h, with a so that peak / trough is as stated.

    >>> wave = daily_wave(4.0)
    >>> max(wave.shares), min(wave.shares)
    (1.0, 0.25)
    """
    swing = (peak_to_trough - 1.0) / (peak_to_trough + 1.0)
    turns = [2.0 * math.pi * (hour - HIGHEST_AT_H) / HOURS for hour in range(HOURS)]
    wave = [(1.0 + swing * math.cos(turn)) / (1.0 + swing) for turn in turns]
    return _day(wave, f"a daily wave of {peak_to_trough:g} to 1")


def _day(shares: list[float], source: str) -> Traffic:
    return Traffic(shares=tuple(shares), step_s=HOUR_S, repeats=True, source=source)


def traffic_of(arrivals_s: list[float], *, source: str) -> Traffic:
    """The traffic of a trace: its rate second by second over that of its busiest minute (whole span, where shorter).

    >>> traffic_of([0.0, 0.5, 1.2, 3.9], source="trace").shares
    (2.0, 1.0, 0.0, 1.0)
    """
    counts = [0] * (int(arrivals_s[-1] - arrivals_s[0]) + 1)
    for at_s in arrivals_s:
        counts[int(at_s - arrivals_s[0])] += 1
    window = min(BUSY_S, len(counts))
    inside = busiest = sum(counts[:window])
    for place in range(window, len(counts)):
        inside += counts[place] - counts[place - window]
        busiest = max(busiest, inside)
    busy_per_s = busiest / window
    return Traffic(shares=tuple(count / busy_per_s for count in counts), step_s=1.0, repeats=False, source=source)


def _arrivals(path: Path) -> list[float]:
    """Seconds of each request. ValueError where the file is no trace."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if COLUMN not in (rows.fieldnames or ()):
                raise ValueError(f"{path} has no column {COLUMN}")
            found = [_second(row[COLUMN], rows.line_num) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not found:
        raise ValueError(f"{path} has no request")
    if any(later < earlier for earlier, later in pairwise(found)):
        raise ValueError(f"the requests of {path} are not in order of arrival")
    if found[-1] - found[0] > LONGEST_S:
        raise ValueError(f"{path} spans more than {LONGEST_S // 86_400} days")
    return found


def _second(text: str | None, line: int) -> float:
    try:
        second = float(text or "")
    except ValueError:
        second = math.nan
    if not math.isfinite(second):
        raise ValueError(f"line {line}: {COLUMN} is '{text}', expected seconds")
    return second
