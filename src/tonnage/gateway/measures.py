"""Counts and times of a worker, as Prometheus reads them. Workers write theirs to files, and one page adds them up.

A count or a time costs a microsecond or less: a bucket is found by bisection, and a label's place is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final

BUCKETS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_COUNTERS: Final = {
    "tonnage_gateway_requests_total": "Requests answered, by route, deployment and status.",
    "tonnage_gateway_tokens_total": "Tokens, by route, deployment and kind.",
    "tonnage_gateway_usd_total": "Dollars settled, by route and deployment.",
    "tonnage_gateway_key_requests_total": "Requests that were let in, by key and team.",
    "tonnage_gateway_key_tokens_total": "Tokens, by key, team and kind.",
    "tonnage_gateway_key_usd_total": "Dollars settled, by key and team.",
    "tonnage_gateway_refused_total": "Requests refused by an allowance.",
    "tonnage_gateway_retries_total": "Attempts after the first, by deployment that failed.",
    "tonnage_gateway_faults_total": "Attempts that failed, by deployment and kind.",
    "tonnage_gateway_cache_total": "Requests of routes with a cache, by what they met.",
    "tonnage_gateway_not_compared_total": "Questions without an embedding, for which no alike one was looked for.",
    "tonnage_gateway_shared_cache_total": "Looks into Redis and answers kept there, by what came of it.",
    "tonnage_gateway_saved_usd_total": "Dollars that answers from the cache would have cost.",
    "tonnage_gateway_over_hold_total": "Attempts that cost more than was held.",
    "tonnage_gateway_reloads_total": "Changed files that workers were sent, followed or refused.",
    "tonnage_gateway_log_total": "Requests for the request log: written, left out of the sample, or lost.",
    "tonnage_gateway_idempotency_total": "Requests with an idempotency key, by what it met.",
    "tonnage_gateway_waiting_total": "Requests that had to wait at a limit, by what ended it.",
    "tonnage_gateway_hedges_total": "Requests for which a second deployment was asked, by who answered.",
    "tonnage_gateway_guardrails_total": "Checks of guardrails, by rule, side and what they met.",
    "tonnage_gateway_spans_total": "OpenTelemetry spans, sent or lost.",
    "tonnage_gateway_canary_total": "Attempts of routes with a canary, by side and what they met.",
    "tonnage_gateway_shadow_total": "Requests asked of a shadow too, by how the answers compare.",
    "tonnage_gateway_classified_total": "Requests of routes with rules on texts, by what said so and what it said.",
    "tonnage_gateway_gone_total": "Clients that left before their answer was whole.",
}
_TIMES: Final = {
    "tonnage_gateway_added_seconds": "Time in the gateway before the request was sent on.",
    "tonnage_gateway_first_byte_seconds": "From a request to the first byte of its answer, by deployment.",
    "tonnage_gateway_waiting_seconds": "Time in the line of a limit.",
    "tonnage_gateway_classifying_seconds": "What a classifier added to a request, by classifier.",
    "tonnage_gateway_latency_seconds": "From a request to the end of its answer, by deployment.",
}
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
    """The page that Prometheus reads. `gauges`: what stands at a moment, each with its own name."""
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
