"""A training job on a device that was measured here: step time, rate, peak memory, each with its interval.

The profile's curves give every operation its seconds; rows measured on the device correct the sum and narrow the
interval (`calibration.local_update`). All is values in, values out.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from tonnage.calibration.intervals import Intervals
from tonnage.calibration.local_drift import DeviceDrift, drift_of
from tonnage.calibration.local_profile import DeviceProfile, combined_log_sd, log_sd_of
from tonnage.calibration.local_rows import (
    REPEATS,
    LocalWork,
    Metric,
    memory_parts,
    named_time_parts,
    observations,
    run_to_run_log_sd,
    time_parts,
)
from tonnage.calibration.local_update import condition, shares_of
from tonnage.calibration.store import Calibration
from tonnage.errors import InputError
from tonnage.planning.reasons.changes import AcceptRisk
from tonnage.planning.reasons.misses import BudgetMiss, DeadlineMiss, MemoryMiss, Miss
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Figure
from tonnage.sizing.fitting import room
from tonnage.sizing.local_memory import checkpoint_copy_bytes
from tonnage.units import SECONDS_PER_HOUR, to_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import Constraints, Risk, TrainJob, Workload

TIME_GROUP, MEMORY_GROUP = "training time", "training memory"
UNSEEN: Final = 1  # the device is one that no packaged row is of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPrediction:
    """What a training job is expected to do on one measured device. Figures carry their 80 % interval."""

    device: str
    work: LocalWork
    steps: int
    step_s: Figure
    samples_per_s: Figure
    tokens_per_s: Figure
    run_s: Figure
    peak_memory_gib: Figure  # host memory of one process on a CPU, device memory on a GPU
    memory_available_gib: float  # for each process, the safety margin kept free
    memory_share_gib: float  # for each process, all of it
    cost_usd: Figure | None  # None: what an hour costs is not known
    time_parts_s: tuple[tuple[str, float], ...]  # of one step by operation, before rows correct the sum
    memory_parts_gib: tuple[tuple[str, float], ...]
    time_rows: int  # measured rows of this device behind the time
    memory_rows: int
    drift: DeviceDrift | None = None  # what runs of this very work say of the profile; None: it has not run

    @property
    def fits(self) -> bool:
        return self.peak_memory_gib.value <= self.memory_available_gib


def predict_local(
    job: TrainJob,
    profile: DeviceProfile,
    calibration: Calibration | None = None,
    *,
    threads: int | None = None,
    processes: int = 1,
    cores: int | None = None,
    micro_batch: int | None = None,
    memory_margin: float | None = None,
    saves_beside: bool | None = None,
) -> LocalPrediction:
    """Predict `job` on the device of `profile`.

    `calibration` gives the prior spread; by default the one the profile was made with. `threads` (of each process): one
    of those measured; by default as many as the step is quickest with, of those that the cores hold. `cores`: those the
    processes may run on together, where that may be fewer than were measured. `micro_batch`: by default the job's own,
    else the largest part of the global batch that fits. `saves_beside`: checkpoints are written while training goes on,
    from a copy that a CPU's memory holds beside it; None: where the job's program is `tonnage`. Raises InputError where
    the profile or the job does not allow it.
    """
    margin = Assumptions().memory_margin_fraction if memory_margin is None else memory_margin
    saves = job.program.name == "tonnage" if saves_beside is None else saves_beside
    share, lent = profile.memory_gib, 0.0
    if profile.kind == "cpu" and processes > 1:  # the first process alone holds the copy that is saved
        share = profile.memory_gib / processes
        lent = to_gib(checkpoint_copy_bytes(job)) * (1 - 1 / processes) if saves else 0.0
    available = room(share, margin) + lent
    counts = (threads,) if threads else _threads_each(profile, processes, cores)
    work = _work(job, profile, counts, processes, micro_batch or job.micro_batch, available, saves)
    time_sd, memory_sd = _prior(profile, calibration)
    time_sd = combined_log_sd(time_sd, profile.busy_log_sd)
    step_s = _believed(work, profile, "time", time_parts(work, profile), time_sd)
    memory = _believed(work, profile, "memory", memory_parts(work, profile), memory_sd)
    steps = ceil(job.samples * job.epochs / work.samples_per_step)
    samples = float(work.samples_per_step)
    run_s = step_s.scaled(float(steps))
    hour = profile.usd_per_hour
    return LocalPrediction(
        device=profile.name,
        work=work,
        steps=steps,
        step_s=step_s,
        samples_per_s=_inverse(step_s, samples),
        tokens_per_s=_inverse(step_s, samples * job.lengths.mean),
        run_s=run_s,
        peak_memory_gib=memory.scaled(to_gib(1.0)),
        memory_available_gib=available,
        memory_share_gib=share + lent,
        cost_usd=None if hour is None else run_s.scaled(hour / SECONDS_PER_HOUR),
        time_parts_s=tuple(sorted(named_time_parts(work, profile).items(), key=lambda part: -part[1])),
        memory_parts_gib=tuple((name, to_gib(size)) for name, size in memory_parts(work, profile).items()),
        time_rows=len(observations(profile, "time")),
        memory_rows=len(observations(profile, "memory")),
        drift=drift_of(
            observations(profile, "time"), work.configuration, prior_log_sd=time_sd, expected_log_sd=REPEATS["time"]
        ),
    )


def training_job(workload: Workload) -> TrainJob:
    """The workload's job. Raises InputError where it is not training."""
    if not isinstance(workload.job, TrainJob):
        raise InputError(
            f"{workload.name} is of kind {workload.kind}; a local device is measured for training and encoder services",
            hint="leave --device out: the catalog's machines are sized for every kind of work",
        )
    return workload.job


def broken_limits(prediction: LocalPrediction, constraints: Constraints) -> tuple[Miss, ...]:
    """Memory, deadline and budget, each where the device does not hold it (at the far end where that is held)."""

    def needed(figure: Figure, limit: Risk) -> float:
        return figure.high if constraints.held(limit) else figure.value

    broken: list[Miss] = []
    memory = _memory_miss(prediction, needed(prediction.peak_memory_gib, "memory"))
    if memory is not None:
        broken.append(memory)
    run_s, deadline_s = needed(prediction.run_s, "deadline"), constraints.deadline_s
    if deadline_s is not None and run_s > deadline_s:
        broken.append(DeadlineMiss(needed_s=run_s, deadline_s=deadline_s))
    cost = None if prediction.cost_usd is None else needed(prediction.cost_usd, "budget")
    if constraints.budget_usd is not None and cost is not None and cost > constraints.budget_usd:
        broken.append(BudgetMiss(needed_usd=cost, budget_usd=constraints.budget_usd))
    return tuple(broken)


def _memory_miss(prediction: LocalPrediction, held_gib: float) -> Miss | None:
    expected = prediction.peak_memory_gib.value
    if not prediction.fits:
        return MemoryMiss(needed_gib=expected, available_gib=prediction.memory_available_gib, of="process")
    if held_gib <= prediction.memory_share_gib:
        return None
    return MemoryMiss(
        needed_gib=held_gib,
        available_gib=prediction.memory_share_gib,
        expected_gib=expected,
        of="process",
        lifted_by=(AcceptRisk(limit="memory"),),
    )


def _work(
    job: TrainJob,
    profile: DeviceProfile,
    counts: tuple[int, ...],
    processes: int,
    micro: int | None,
    available: float,
    saves_beside: bool,
) -> LocalWork:
    if processes < 1 or (micro is not None and micro < 1):
        raise InputError("processes and micro-batch are whole numbers of at least 1")
    count = counts[-1]
    if count not in profile.threads:
        raise InputError(
            f"{profile.name} was not measured with {count} threads, but with {', '.join(map(str, profile.threads))}",
            hint=f"`tonnage calibrate --local --threads {count}` measures it",
        )
    precision = job.precision
    if precision == "auto":
        half = any(one.operation == "product" and one.precision == "bf16" for one in profile.curves)
        precision = "bf16" if half else "fp32"
    job = replace(job, precision=precision)
    share = max(1, job.global_batch // processes)
    size = micro or share
    work = LocalWork(
        job=job, micro_batch=size, accumulation=ceil(share / size), threads=count, processes=processes,
        saves_beside=saves_beside,
    )  # fmt: skip
    while micro is None and size > 1 and to_gib(sum(memory_parts(work, profile).values())) > available:
        size = ceil(size / 2)
        work = replace(work, micro_batch=size, accumulation=ceil(share / size))
    return min((replace(work, threads=one) for one in counts), key=lambda one: sum(time_parts(one, profile).values()))


def _threads_each(profile: DeviceProfile, processes: int, cores: int | None) -> tuple[int, ...]:
    """Thread counts to choose from, most last: small operations lose more by waking threads than they gain by them."""
    if profile.kind == "cuda":
        return profile.threads[:1]
    most = min(max(profile.threads), cores or max(profile.threads)) // max(processes, 1)
    return tuple(one for one in profile.threads if one <= most) or profile.threads[:1]


def _prior(profile: DeviceProfile, calibration: Calibration | None) -> tuple[float, float]:
    if calibration is None:
        return profile.time_log_sd, profile.memory_log_sd
    return prior_log_sds(calibration)


def prior_log_sds(calibration: Calibration | None) -> tuple[float, float]:
    """How far predictions of training time and memory are off on a device no row is of, in logarithms: the left-out
    residuals of a calibration, or where there is none the judgement of `sizing.assumptions`, widened by what it says
    for one unknown."""
    intervals = Intervals() if calibration is None else calibration.intervals
    spreads = [intervals.spread(group, UNSEEN) for group in (TIME_GROUP, MEMORY_GROUP)]
    return log_sd_of(spreads[0]), log_sd_of(spreads[1])


def _believed(
    work: LocalWork, profile: DeviceProfile, metric: Metric, parts: dict[str, float], prior_log_sd: float
) -> Figure:
    alike = work.configuration if metric == "time" else work.memory_configuration
    belief = condition(observations(profile, metric), prior_log_sd, shares_of(parts), alike, work.job.method)
    return belief.around(sum(parts.values()), run_to_run_log_sd(profile, metric))


def _inverse(seconds: Figure, amount: float) -> Figure:
    return Figure(value=amount / seconds.value, low=amount / seconds.high, high=amount / seconds.low, basis="computed")
