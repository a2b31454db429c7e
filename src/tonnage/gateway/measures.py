"""Counts and times of a worker, as Prometheus reads them. Workers write theirs to files, and one page adds them up.

A count or a time costs a microsecond or less: a bucket is found by bisection, and a label's place is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tonnage.metric_names.of_gateway import GATEWAY_METRICS

BUCKETS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_COUNTERS: Final = {one.name: one.help for one in GATEWAY_METRICS if one.kind == "counter"}
_TIMES: Final = {one.name: one.help for one in GATEWAY_METRICS if one.kind == "histogram"}
Labels = tuple[tuple[str, str], ...]


class GatewayMeasures:
    """Of one worker. Amounts are integers or floats; a name must be one of those above.

    A cell that is kept by who counts costs a tenth of a microsecond: `cell[0] += 1`.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[str, Labels], list[float]] = {}
        self.times: dict[tuple[str, Labels], list[float]] = {}  # a count a bucket, those over the last, the sum

    def cell(self, name: str, labels: Labels = ()) -> list[float]:
        """The one-item list of a count."""
        return self.counts.setdefault((name, labels), [0])

    def count(self, name: str, labels: Labels = (), amount: float = 1) -> None:
        self.cell(name, labels)[0] += amount

    def histogram(self, name: str, labels: Labels = ()) -> list[float]:
        """The list that `add_time` fills."""
        return self.times.setdefault((name, labels), [0.0] * (len(BUCKETS_S) + 2))

    def document(self) -> dict[str, Any]:
        """For a file: lists, since JSON has no tuples as keys."""
        return {
            "counts": [[name, labels, cell[0]] for (name, labels), cell in self.counts.items()],
            "times": [[name, labels, values] for (name, labels), values in self.times.items()],
        }


def add_time(histogram: list[float], seconds: float) -> None:
    histogram[bisect_left(BUCKETS_S, seconds)] += 1
    histogram[-1] += seconds


def added_up(documents: Iterable[Mapping[str, Any]]) -> GatewayMeasures:
    """The measures of all workers as one."""
    total = GatewayMeasures()
    for document in documents:
        for name, labels, amount in document["counts"]:
            total.count(name, _labels(labels), amount)
        for name, labels, values in document["times"]:
            known = total.histogram(name, _labels(labels))
            known[:] = [one + other for one, other in zip(known, values, strict=True)]
    return total


def prometheus_text(measures: GatewayMeasures, gauges: Mapping[tuple[str, Labels], float]) -> str:
    """The page that Prometheus reads. `gauges`: what holds at a moment, each with its own name."""
    lines: list[str] = []
    for name, meaning in _COUNTERS.items():
        counted = sorted((labels, cell[0]) for (one, labels), cell in measures.counts.items() if one == name)
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} counter"]
        lines += [f"{name}{_shown(labels)} {amount:.12g}" for labels, amount in counted]
    for name, meaning in _TIMES.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} histogram"]
        found = sorted((labels, values) for (one, labels), values in measures.times.items() if one == name)
        for labels, values in found:
            lines += _histogram(name, labels, values)
    for (name, labels), amount in sorted(gauges.items()):
        if f"# TYPE {name} gauge" not in lines:
            lines.append(f"# TYPE {name} gauge")
        lines.append(f"{name}{_shown(labels)} {amount:.12g}")
    return "\n".join(lines) + "\n"


def _histogram(name: str, labels: Labels, values: list[float]) -> list[str]:
    lines, running = [], 0.0
    for bound, count in zip((*BUCKETS_S, float("inf")), values[:-1], strict=True):
        running += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        lines.append(f"{name}_bucket{_shown((*labels, ('le', edge)))} {running:g}")
    return [*lines, f"{name}_sum{_shown(labels)} {values[-1]:.9g}", f"{name}_count{_shown(labels)} {running:g}"]


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    inside = ",".join('{}="{}"'.format(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
                      for name, value in labels)  # fmt: skip
    return "{" + inside + "}"


def _labels(given: Iterable[Iterable[str]]) -> Labels:
    return tuple((name, value) for name, value in given)
