"""Predicted beside measured, and what of the measurements says why they differ: rules of thumb with their figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.units import SECONDS_PER_HOUR, to_gib
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.runs.measured import MeasuredRun, Records

# Judgements: from where on something is worth naming. None of them moves a figure.
WAITED: Final = 0.10  # of the step time, for data
OTHERS: Final = 0.10  # of the machine's processors, taken by others
THROTTLED: Final = 0.10  # of the samples
FEWEST_STEPS: Final = 10
SHORTEST_S: Final = 0.5  # of timed steps
LENGTHS: Final = 0.10  # mean length against the stated one
_IN_STEPS: Final = "in steps; start-up, evaluation and saving are not predicted"
_STEPS_COST: Final = "of the time in steps; all that the machines were held for is under Spend"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure as predicted and as measured. `read_as` says which of several figures was measured."""

    key: str  # with its unit
    predicted: float
    low: float
    high: float
    basis: str
    measured: float | None
    read_as: str

    @property
    def inside(self) -> bool | None:
        """Whether the 80 % interval holds it; None: not measured."""
        return None if self.measured is None else self.low <= self.measured <= self.high

    @property
    def off_fraction(self) -> float | None:
        """Measured over predicted, less one."""
        return None if self.measured is None or not self.predicted else self.measured / self.predicted - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """Something seen, and which ways of missing a prediction it can explain."""

    text: str
    explains: frozenset[str]


def compare(records: Records, measured: MeasuredRun) -> tuple[ComparedFigure, ...]:
    """Every predicted figure beside the one that was measured."""
    figures = records.prediction.get("figures") or {}
    return tuple(
        ComparedFigure(
            key=key, predicted=float(figure["value"]), low=float(figure["low"]), high=float(figure["high"]),
            basis=str(figure.get("basis", "")), measured=value, read_as=read_as,
        )
        for key, figure in figures.items()
        if figure is not None
        for value, read_as in [_counterpart(key, records, measured)]
    )  # fmt: skip


def _counterpart(key: str, records: Records, measured: MeasuredRun) -> tuple[float | None, str]:
    done, changed = records.state.state.value == "succeeded", len(records.stretches) > 1
    if changed and key in ("time_s", "cost_usd"):
        return None, f"processes or device changed at step {measured.since_step:,}: no one prediction is of all of it"
    match key:
        case "samples_per_s":
            return measured.samples_per_s, "all processes, " + measured.timing
        case "tokens_per_s":
            return measured.tokens_per_s, "all processes, without padding"
        case "peak_memory_gib":
            return _memory(measured)
        case "time_s":
            return (measured.training_s if done else None), _IN_STEPS if done else "not at its end"
        case "cost_usd":
            return (_steps_usd(records, measured) if done else None), _STEPS_COST if done else "not at its end"
    return None, "not measured"


def _steps_usd(records: Records, measured: MeasuredRun) -> float | None:
    """What the time in steps costs by the price given, as it is predicted: the bill has start-up, saving and whole
    billing intervals too."""
    hour = records.spec.guard.usd_per_hour
    return None if hour is None or measured.training_s is None else measured.training_s / SECONDS_PER_HOUR * hour


def _memory(measured: MeasuredRun) -> tuple[float | None, str]:
    """What a device must have: the fullest reading there is."""
    readings = (
        (measured.peak_device_bytes, f"{'own processes' if measured.device_memory_is_own else 'whole device'} (NVML)"),
        (measured.peak_reserved_bytes, "reserved by the allocator"),
        (measured.peak_allocated_bytes, "allocated by tensors"),
        (measured.peak_process_rss_bytes, "resident on the host, one process"),
    )
    return next(((to_gib(size), words) for size, words in readings if size), (None, "not measured"))


def explain(records: Records, measured: MeasuredRun, compared: tuple[ComparedFigure, ...]) -> tuple[str, ...]:
    """Why figures lie outside their interval, as far as the measurements tell; empty where all lie inside."""
    missed = {way for one in compared for way in _ways(one)}
    if not missed:
        return ()
    found = [one for one in _findings(records, measured) if one.explains & missed]
    if found:
        return tuple(one.text for one in found)
    worst = max((one for one in compared if one.inside is False), key=lambda one: abs(one.off_fraction or 0.0))
    off = f"{100 * (worst.off_fraction or 0.0):+.0f} %"
    doubtful = doubts(records, measured)
    then = f"this run teaches nothing ({doubtful[0]})" if doubtful else "what this run measured corrects the next one"
    return (f"nothing that was measured explains it: the prediction of {worst.key} itself is off ({off}); {then}",)


def doubts(records: Records, measured: MeasuredRun) -> tuple[str, ...]:
    """Why the rows of a run should not be fitted to; empty where they may."""
    return tuple(one.text for one in _findings(records, measured) if "doubtful" in one.explains)


def _ways(one: ComparedFigure) -> Iterator[str]:
    if one.measured is None or one.inside:
        return
    above = one.measured > one.high
    if one.key.endswith("_per_s"):
        yield "fast" if above else "slow"
    elif one.key == "peak_memory_gib":
        yield "large" if above else "small"
    else:
        yield "long" if above else "short"


def _findings(records: Records, measured: MeasuredRun) -> Iterator[_Finding]:
    yield from _of_load(measured)
    yield from _of_events(measured)
    yield from _of_lengths(records.prediction, measured)
    yield from _of_size(records, measured)


def _of_load(measured: MeasuredRun) -> Iterator[_Finding]:
    waited, others, held = measured.data_wait_fraction, measured.other_cpu_fraction, measured.throttled_fraction
    if waited is not None and waited > WAITED:
        text = f"{100 * waited:.0f} % of the step time was waiting for data"
        yield _finding(text, "slow", "long", "doubtful")
    if others is not None and others > OTHERS and _workers_unseen(measured):
        text = "another program started the workers (srun): what others took of the processors is not known"
        yield _finding(text, "doubtful")
    elif others is not None and others > OTHERS:
        text = f"the machine was busy: other processes took {100 * others:.0f} % of its processors"
        yield _finding(text, "slow", "long", "doubtful")
    if held is not None and held > THROTTLED:
        hot = f", up to {measured.temperature_c:.0f} °C" if measured.temperature_c is not None else ""
        text = f"the GPU held its clocks back for {measured.throttled_by} in {100 * held:.0f} % of the samples{hot}"
        ways = ("slow", "long") + (("doubtful",) if "temperature" in measured.throttled_by else ())
        yield _finding(text, *ways)  # a GPU at its power limit runs as it is sold


def _workers_unseen(measured: MeasuredRun) -> bool:
    """Whether the processes below the supervisor held less memory than one worker says of itself."""
    seen, own = measured.peak_host_rss_bytes, measured.peak_process_rss_bytes
    return seen is not None and own is not None and seen < own


def _of_events(measured: MeasuredRun) -> Iterator[_Finding]:
    if measured.halvings:
        text = f"memory ran out: the micro-batch went down to {measured.micro_batch}, with more accumulation"
        yield _finding(text, "slow", "long", "small", "large")
    if measured.restarts:
        text = f"{_count(measured.restarts, 'restart')}, {_count(measured.lost_steps, 'step')} done again"
        yield _finding(text, "long")


def _of_lengths(prediction: Mapping[str, Any], measured: MeasuredRun) -> Iterator[_Finding]:
    stated = (prediction.get("lengths") or {}).get("mean")
    if not stated or not measured.tokens_per_sample:
        return
    off = measured.tokens_per_sample / stated - 1
    if abs(off) > LENGTHS:
        longer = off > 0
        text = f"texts had {measured.tokens_per_sample:.0f} tokens on average, {stated:.0f} were stated"
        yield _finding(text, *(("slow", "long", "large") if longer else ("fast", "short", "small")))


def _of_size(records: Records, measured: MeasuredRun) -> Iterator[_Finding]:
    timed_s = (measured.median_step_s or 0.0) * measured.timed_steps
    if measured.timed_steps < FEWEST_STEPS or timed_s < SHORTEST_S:
        text = f"a short run: {measured.timed_steps} timed steps, {timed_s:.1f} s"
        yield _finding(text, "slow", "fast", "short", "long", "doubtful")
    state = records.state
    if state.state.ended and state.state.value != "succeeded":
        yield _finding(f"the run {state.state.value} before its end", "short", "small")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _finding(text: str, *ways: str) -> _Finding:
    return _Finding(text=text, explains=frozenset(ways))
