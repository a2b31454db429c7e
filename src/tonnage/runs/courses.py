"""Memory, processors and energy of a run over its time, from what was sampled beside it.

Energy is by the device's own counter where it has one, else power over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final, Literal

from tonnage.units import to_gib
from tonnage.values import dataclass

Course = tuple[tuple[float, float], ...]  # (minutes since the first sample, figure)
Sample = Mapping[str, Any]
LONGEST_GAP: Final = 5.0  # times the usual distance of two samples: beyond it the run was not there


def memory_courses(samples: Sequence[Sample]) -> tuple[tuple[str, Course], ...]:
    """GiB: on the host by all of the run's processes, and of the fullest GPU (the run's own part where it is known)."""
    return _courses(samples, (("host, all processes", _host_gib), ("fullest GPU", _gpu_gib)))


def load_courses(samples: Sequence[Sample]) -> tuple[tuple[str, Course], ...]:
    """Percent: of the processors by the run and by others, of the GPUs (mean) in which a kernel ran."""
    return _courses(
        samples, (("processors, by the run", _own_load), ("processors, by others", _other_load), ("GPUs", _gpu_load))
    )


def _courses(
    samples: Sequence[Sample], figures: Sequence[tuple[str, Callable[[Sample], float | None]]]
) -> tuple[tuple[str, Course], ...]:
    if not samples:
        return ()
    began = datetime.fromisoformat(samples[0]["at"])
    minutes = [(datetime.fromisoformat(sample["at"]) - began).total_seconds() / 60 for sample in samples]

    def points(figure: Callable[[Sample], float | None]) -> Iterator[tuple[float, float]]:
        for at, sample in zip(minutes, samples, strict=True):
            value = figure(sample)
            if value is not None:
                yield at, value

    found = ((name, tuple(points(figure))) for name, figure in figures)
    return tuple((name, course) for name, course in found if course)


def _host_gib(sample: Sample) -> float | None:
    return None if sample.get("host_rss_bytes") is None else to_gib(sample["host_rss_bytes"])


def _gpu_gib(sample: Sample) -> float | None:
    known = [gpu.get("memory_own_bytes", gpu.get("memory_used_bytes")) for gpu in sample.get("gpus", ())]
    return max((to_gib(size) for size in known if size is not None), default=None)


def _own_load(sample: Sample) -> float | None:
    return None if sample.get("cpu_fraction") is None else 100 * sample["cpu_fraction"]


def other_cpu_fraction(sample: Sample) -> float | None:
    """Of the machine's processors, by programs that have nothing to do with the run: its supervisor has."""
    if sample.get("machine_cpu_fraction") is None or sample.get("cpu_fraction") is None:
        return None
    own = float(sample["cpu_fraction"]) + float(sample.get("overhead_cpu_fraction", 0.0))
    return max(float(sample["machine_cpu_fraction"]) - own, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of all GPUs together, and how they were found."""

    joules: float
    basis: Literal["counter", "power over time"]


def energy_of(samples: Sequence[Mapping[str, Any]]) -> Energy | None:
    """Energy of the sampled GPUs, of all their users; None where one of them reports neither energy nor power.

    Between two samples: the growth of the counter, or half the sum of both powers times the time. A pause, during
    which nothing was sampled, is not counted.
    """
    timed = [(datetime.fromisoformat(sample["at"]).timestamp(), _by_gpu(sample)) for sample in samples]
    gpus = sorted({index for _, found in timed for index in found})
    spans = [(later[0] - earlier[0], earlier[1], later[1]) for earlier, later in pairwise(timed)]
    if not gpus or not spans:
        return None
    longest = LONGEST_GAP * median(span[0] for span in spans)
    kept = [span for span in spans if 0 < span[0] <= longest]
    totals = [_of_one(index, kept) for index in gpus]
    known = [total for total in totals if total is not None]
    if len(known) < len(totals):
        return None
    counted = all(basis == "counter" for _, basis in known)
    return Energy(joules=sum(joules for joules, _ in known), basis="counter" if counted else "power over time")


def _other_load(sample: Sample) -> float | None:
    fraction = other_cpu_fraction(sample)
    return None if fraction is None else 100.0 * fraction


def _gpu_load(sample: Sample) -> float | None:
    known = [gpu["utilization_fraction"] for gpu in sample.get("gpus", ()) if "utilization_fraction" in gpu]
    return 100.0 * float(sum(known)) / len(known) if known else None


def _by_gpu(sample: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {gpu["index"]: gpu for gpu in sample.get("gpus", ())}


def _of_one(
    index: int, spans: Sequence[tuple[float, Mapping[int, Mapping[str, Any]], Mapping[int, Mapping[str, Any]]]]
) -> tuple[float, str] | None:
    both = [(seconds, earlier[index], later[index]) for seconds, earlier, later in spans
            if index in earlier and index in later]  # fmt: skip
    for key, basis in (("energy_j", "counter"), ("power_w", "power over time")):
        known = [(seconds, one[key], two[key]) for seconds, one, two in both if key in one and key in two]
        if known and len(known) == len(both):
            if key == "energy_j":  # a counter that fell was set to 0 by a new driver
                return sum(two - one if two >= one else two for _, one, two in known), basis
            return sum(seconds * (one + two) / 2 for seconds, one, two in known), basis
    return None
