"""Memory and processors of a run over its time, from what was sampled beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tonnage.units import to_gib

Course = tuple[tuple[float, float], ...]  # (minutes since the first sample, figure)
Sample = Mapping[str, Any]


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


def _other_load(sample: Sample) -> float | None:
    fraction = other_cpu_fraction(sample)
    return None if fraction is None else 100.0 * fraction


def _gpu_load(sample: Sample) -> float | None:
    known = [gpu["utilization_fraction"] for gpu in sample.get("gpus", ()) if "utilization_fraction" in gpu]
    return 100.0 * float(sum(known)) / len(known) if known else None
