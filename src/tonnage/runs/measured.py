"""What a run was measured to do, from its folder: time, rates, memory, load, energy, dollars.

Each figure says what it is of. Peak memory is four figures that are not the same: what tensors held (allocated), what
the framework's allocator held (reserved), what the whole device held (device), and what processes held on the host
(the first worker alone, and all together).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from statistics import fmean, median, quantiles
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.runs.courses import Energy, energy_of, other_cpu_fraction
from tonnage.runs.folder import RunFolder, read_document
from tonnage.runs.guards import sessions_of
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.measured_rows import rows_of
from tonnage.runs.progress import read_progress
from tonnage.runs.series import MOST_LINES, thin_lines
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunState, state_of, with_mark
from tonnage.runs.stretches import Stretch, stretches_of
from tonnage.values import dataclass

WARM_UP: Final = "the first logged window of each attempt left out"
_BY_WORKER: Final = "timed step by step by the worker; the first step of each attempt left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The figures of one run. None: not measured."""

    timing: str  # what the step times are over
    steps: int  # the optimizer step of the run
    timed_steps: int
    median_step_s: float | None = None
    p90_step_s: float | None = None
    samples_per_s: float | None = None  # over all processes, in steps: what is predicted
    clock_samples_per_s: float | None = None  # by the clock: data wait, agreement, saves, evaluations between steps too
    tokens_per_s: float | None = None  # without padding
    data_wait_fraction: float | None = None
    tokens_per_sample: float | None = None  # mean, without padding
    longest_tokens: int | None = None  # of the preflight step
    peak_allocated_bytes: int | None = None  # of one device, by tensors
    peak_reserved_bytes: int | None = None  # of one device, by the allocator
    peak_device_bytes: int | None = None  # of one device (NVML)
    device_memory_is_own: bool = False  # by the run's processes alone; else by everything on the device
    peak_process_rss_bytes: int | None = None  # resident on the host, the first worker alone
    peak_host_rss_bytes: int | None = None  # resident on the host, over all of the run's processes
    gpu_utilization_fraction: float | None = None  # mean
    power_w: float | None = None  # mean over all GPUs together
    temperature_c: float | None = None  # highest
    throttled_fraction: float | None = None  # of the samples
    throttled_by: str = ""
    cpu_fraction: float | None = None  # of the machine, by the run
    other_cpu_fraction: float | None = None  # of the machine, by everything else
    energy: Energy | None = None
    training_s: float | None = None  # all steps that were logged, those done again too; start-up and saving left out
    seconds: float | None = None  # machines held, over all sessions
    usd: float | None = None
    device: str = ""
    processes: int = 1
    micro_batch: int | None = None  # at the end
    halvings: int = 0  # of the micro-batch, because memory ran out
    restarts: int = 0
    lost_steps: int = 0
    since_step: int = 0  # rates, peaks and load are of the steps after this one: the configuration changed there
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All that a run's folder says, read once."""

    spec: RunSpec
    events: tuple[Event, ...]
    lines: tuple[Mapping[str, Any], ...]  # of metrics
    samples: tuple[Mapping[str, Any], ...]
    result: Mapping[str, Any] = field(default_factory=dict)  # empty: not finished
    prediction: Mapping[str, Any] = field(default_factory=dict)
    lines_share: float = 1.0  # of the metrics that `lines` are; below 1: a long run, thinned evenly
    samples_share: float = 1.0
    state: RunState = RunState()  # of the whole run

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Each in one configuration: processes and device."""
        return stretches_of(self.events, self.spec.launch)

    def newest_stretch(self) -> Records:
        """Only what was recorded in the newest configuration: what one row may be made of."""
        since = self.stretches[-1].since
        if since is None:
            return self
        return replace(
            self,
            events=tuple(event for event in self.events if event.at >= since),
            lines=tuple(line for line in self.lines if "at" not in line or _at(line) >= since),
            samples=tuple(sample for sample in self.samples if _at(sample) >= since),
        )


def read_records(folder: RunFolder, *, thin: bool = False) -> Records:
    """The contents of a run folder. InputError names a file of it that cannot be read.

    `thin`: of a long run's metrics and samples so many as its course is seen by. Means and rates are then those of an
    even part of it; the highest reading of a device may lie between two that were read.
    """
    try:
        most = MOST_LINES if thin else sys.maxsize
        faults: list[str] = []
        lines, samples = (thin_lines(path, most=most) for path in (folder.metrics_file, folder.samples_file))
        events = tuple(folder.events(brief=thin, faults=faults))
        return Records(
            spec=folder.spec(),
            events=events,
            lines=lines.lines,
            samples=samples.lines,
            lines_share=lines.share,
            samples_share=samples.share,
            result=read_document(folder.result_file),
            prediction=read_document(folder.prediction_file),
            state=replace(with_mark(state_of(events), read_progress(folder.path)), faults=tuple(faults)),
        )
    except (ValueError, OSError) as error:
        raise InputError(
            f"the run folder {folder.path} cannot be read: {error}", hint="is it a run's folder?"
        ) from error


def measured_rows(folder: RunFolder, as_of: datetime) -> list[dict[str, str]]:
    """Rows in the columns of the training facts that a run's folder gives; none for tables and generated text."""
    records = read_records(folder)
    return rows_of(records.newest_stretch(), measure(records), as_of, began=records.state.submitted_at)


def versions_text(folder: RunFolder) -> str:
    """The versions a run was done with, in one line; empty where it did not get to its end."""
    return ", ".join(f"{name} {version}" for name, version in measure(read_records(folder)).versions)


def measure(records: Records) -> MeasuredRun:
    """The figures of a run so far: rates, peaks and load of its newest configuration, totals over all of it."""
    whole, stretch, records = records, records.stretches[-1], records.newest_stretch()
    spec, result, samples = records.spec, records.result, records.samples
    state, sessions = whole.state, sessions_of(whole.events, spec.guard)
    times = _times(records)
    gpus = [gpu for sample in samples for gpu in sample.get("gpus", ())]
    preflight = _newest(records.events, EventKind.PREFLIGHT)
    costs = [session.usd for session in sessions if session.usd is not None]
    return MeasuredRun(
        **times,
        steps=state.step,
        longest_tokens=preflight.get("longest_tokens"),
        peak_allocated_bytes=_peak(records, "peak_allocated_bytes"),
        peak_reserved_bytes=_peak(records, "peak_reserved_bytes"),
        **_device_memory(gpus),
        peak_process_rss_bytes=_highest(
            [*records.lines, {"host_rss_bytes": result.get("peak_host_rss_bytes")}], "host_rss_bytes"
        ),
        peak_host_rss_bytes=_highest(samples, "host_rss_bytes"),
        gpu_utilization_fraction=_mean(gpus, "utilization_fraction"),
        power_w=_mean_power(samples),
        temperature_c=_highest(gpus, "temperature_c"),
        **_throttling(gpus),
        cpu_fraction=_mean(samples, "cpu_fraction"),
        other_cpu_fraction=_other_load(records),
        energy=energy_of(whole.samples),
        training_s=_training_s(whole),
        seconds=sum(session.seconds for session in sessions) if sessions else None,
        usd=sum(costs) if costs else None,
        device=str(result.get("device") or next((gpu["name"] for gpu in gpus), "") or preflight.get("device") or ""),
        processes=int(result.get("processes") or stretch.processes),
        micro_batch=micro_batch_of(records),
        halvings=sum(event.kind is EventKind.OUT_OF_MEMORY for event in records.events),
        restarts=max(state.attempt - 1, 0),
        lost_steps=state.lost_steps,
        since_step=stretch.step,
        versions=tuple(sorted((str(name), str(version)) for name, version in result.get("versions", {}).items())),
    )


def micro_batch_of(records: Records) -> int | None:
    """The micro-batch the run ended with: as asked, found by the preflight, or halved since."""
    asked = records.spec.training.micro_batch
    named = [
        event.fields.get("next_micro_batch" if event.kind is EventKind.OUT_OF_MEMORY else "micro_batch")
        for event in records.events
        if event.kind in {EventKind.PREFLIGHT, EventKind.TRAINING, EventKind.OUT_OF_MEMORY}
    ]
    return next((int(size) for size in reversed(named) if size), asked)


def _times(records: Records) -> dict[str, Any]:
    """Step times and rates: the worker's own where it got to the end, else from the lines it logged."""
    windows = _windows(records)
    tokens, samples = (sum(window.get(key, 0) * count for window, count in windows) for key in ("tokens", "samples"))
    mean_tokens = tokens / samples if tokens and samples else None
    result = records.result
    if result.get("median_step_s"):
        names = (
            "median_step_s", "p90_step_s", "samples_per_s", "clock_samples_per_s", "tokens_per_s", "data_wait_fraction"
        )  # fmt: skip
        given = {name: result.get(name) for name in names}
        return given | {"timing": _BY_WORKER,
                        "timed_steps": int(result.get("timed_steps") or result.get("steps") or 0),
                        "tokens_per_sample": mean_tokens}  # fmt: skip
    if not windows:
        return {"timing": "no step was timed", "timed_steps": 0}
    each = [window["step_s"] for window, count in windows for _ in range(count)]
    total = sum(each)
    waits = [window["data_wait_s"] * count for window, count in windows if "data_wait_s" in window]
    return {
        "timing": f"means of {len(windows)} logged windows; {WARM_UP}",
        "timed_steps": len(each),
        "median_step_s": median(each),
        "p90_step_s": quantiles(each, n=10, method="inclusive")[-1] if len(each) > 1 else each[0],
        "samples_per_s": samples / total if samples and total else None,
        "tokens_per_s": tokens / total if tokens and total else None,
        "data_wait_fraction": min(sum(waits) / total, 1.0) if waits and total else None,
        "tokens_per_sample": mean_tokens,
    }


def _training_s(records: Records) -> float | None:
    """Seconds in steps. A line that does not say how many steps it is of counts as one."""
    timed = [line["step_s"] * (line.get("steps") or 1) for line in records.lines if line.get("step_s")]
    return sum(timed) / records.lines_share if timed else None


def _windows(records: Records) -> list[tuple[Mapping[str, Any], int]]:
    """Logged lines that time steps, each with its number of steps. Warm-up goes where anything is left without it."""
    every, warm = [], []
    starts = sorted(event.at for event in records.events if event.kind is EventKind.STARTED)
    before: tuple[int, int] | None = None  # attempt and step of the line before
    for line in records.lines:
        if not line.get("step_s"):
            continue
        attempt = bisect_left(starts, datetime.fromisoformat(line["at"])) if "at" in line else 0
        first = before is None or attempt != before[0] or line["step"] <= before[1]
        count = line.get("steps") or (1 if before is None or first else line["step"] - before[1])
        every.append((line, int(count)))
        if not first:
            warm.append((line, int(count)))
        before = (attempt, line["step"])
    return warm or every


def _device_memory(gpus: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fullest device: by the run's own processes where NVML could tell them, else by everything on it."""
    for key in ("memory_own_bytes", "memory_used_bytes"):
        bytes_used = [gpu[key] for gpu in gpus if gpu.get(key) is not None]
        if bytes_used:
            return {"peak_device_bytes": max(bytes_used), "device_memory_is_own": key == "memory_own_bytes"}
    return {}


def _throttling(gpus: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    reasons = [gpu["throttled_by"] for gpu in gpus if gpu.get("throttled_by") is not None]
    held = [reason for reason in reasons if reason]
    words = [word for word in ("temperature", "power") if any(word in reason for reason in held)]
    return {"throttled_fraction": len(held) / len(reasons) if reasons else None, "throttled_by": " and ".join(words)}


def _other_load(records: Records) -> float | None:
    """Mean while steps were taken: a start loads the processors in its own way."""
    began = next((event.at for event in records.events if event.kind is EventKind.TRAINING), None)
    samples = [sample for sample in records.samples if began is None or _at(sample) > began]
    found = [fraction for sample in samples if (fraction := other_cpu_fraction(sample)) is not None]
    return fmean(found) if found else None


def _mean_power(samples: Iterable[Mapping[str, Any]]) -> float | None:
    """All GPUs together, mean over the samples in which each reported its power."""
    powers = [[gpu.get("power_w") for gpu in sample["gpus"]] for sample in samples if sample.get("gpus")]
    whole = [sum(row) for row in powers if None not in row]
    return fmean(whole) if whole else None


def _peak(records: Records, key: str) -> Any:
    """The highest of what was logged and of what the result says."""
    return _highest([*records.lines, {key: records.result.get(key)}], key)


def _highest(values: Iterable[Mapping[str, Any]], key: str) -> Any:
    return max((one[key] for one in values if one.get(key) is not None), default=None)


def _mean(values: Iterable[Mapping[str, Any]], key: str) -> float | None:
    known = [one[key] for one in values if one.get(key) is not None]
    return fmean(known) if known else None


def _newest(events: Iterable[Event], kind: EventKind) -> Mapping[str, Any]:
    found: Mapping[str, Any] = {}
    for event in events:
        if event.kind is kind:
            found = event.fields
    return found


def _at(values: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(values["at"])
