"""The predicted gain of each switch: the same predictor asked twice, for the work as it is and with the change; on a
processor that was measured, its profile is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, hypot, log, sqrt
from typing import Final

from tonnage.calibration.local_inference import check_passes, pass_seconds
from tonnage.calibration.local_profile import NORMAL_80, DeviceProfile, combined_log_sd
from tonnage.calibration.local_update import COMMON_SHARE
from tonnage.errors import InputError
from tonnage.optimisations.outcomes import SwitchOutcome, Unpredicted
from tonnage.optimisations.switches import Group, Switch, SwitchChange, changed
from tonnage.planning.local import predict_local
from tonnage.sizing.estimates import Figure, Spread
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TrainJob

Rate = Callable[[Job, SwitchChange], Figure | Unpredicted]  # work a second, of the changed job under the change
SpreadOf = Callable[[Job, Group], Spread]  # the 80 % interval of a predicted gain, as factors
WORTH: Final = 1.005  # a further switch is kept in the combination from this gain on
# How far a predicted gain is from the measured one: the 80 % interval of measured over predicted, over pairs of
# measured rows of one source that differ in that alone (`python benchmarks/gains_of_switches.py`, 2026-11-27). Most of
# these rows took part in the fit. Which of a pair comes first is arbitrary, so the ends are made symmetrical. Other
# groups have too few pairs (one of compilation) and take the interval of their kind.
TRAINING_SPREAD: Final = Spread(low_factor=0.74, high_factor=1.36)  # 86 pairs of number formats
FORMAT_SPREAD: Final = Spread(low_factor=0.83, high_factor=1.20)  # 1,328 pairs of inference
ENGINE_SPREAD: Final = Spread(low_factor=0.76, high_factor=1.32)  # 886 pairs of inference
# How fast a host launches kernels is known of no machine beforehand. Two rented hosts took 40 and 90 microseconds a
# kernel (benchmarks/results/gpu_models_training_h100-80gb-sxm_2026-11-22.csv, an H100's and an H200's): in logarithms a
# standard deviation of ln(90/40)/sqrt(2), and this factor either way at 80 %.
HOST_FACTOR: Final = exp(NORMAL_80 * log(90.0 / 40.0) / sqrt(2.0))
FRESH: Final = "first touch"  # the curve of memory that the system maps and fills with zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Switches that help on top of one another, as predicted."""

    names: tuple[str, ...]
    rate_per_s: Figure
    gain: Figure


def gpu_gain_spread(job: Job, group: Group) -> Spread:
    """Of a predicted gain on a GPU of the catalog: both rates share the errors of device and model."""
    if isinstance(job, TrainJob):
        return TRAINING_SPREAD
    return ENGINE_SPREAD if group == "engine" else FORMAT_SPREAD


def processor_gain_spread(profile: DeviceProfile) -> SpreadOf:
    """Of a predicted gain on a measured processor. What other programs took of it meanwhile falls out of the ratio, and
    so does the part ρ of the error that is common to all operations: sd = σ·sqrt(2·(1 - ρ))."""
    reach = exp(NORMAL_80 * profile.time_log_sd * sqrt(2.0 * (1.0 - COMMON_SHARE)))
    spread = Spread(low_factor=1.0 / reach, high_factor=reach)
    return lambda _job, _group: spread


def predict_switches(
    job: Job,
    switches: Sequence[Switch],
    rate: Rate,
    base: Figure | Unpredicted,
    spread_of: SpreadOf,
    other_hosts: Sequence[Rate] = (),
) -> tuple[SwitchOutcome, ...]:
    """Each switch alone, beside the work as it is stated. `other_hosts`: the same predictor with hosts that launch
    slower and faster; where a gain depends on them its interval is as much wider."""
    return tuple(_outcome(job, one, rate, base, spread_of, other_hosts) for one in switches)


def _outcome(
    job: Job,
    switch: Switch,
    rate: Rate,
    base: Figure | Unpredicted,
    spread_of: SpreadOf,
    other_hosts: Sequence[Rate],
) -> SwitchOutcome:
    if not switch.sized:
        return SwitchOutcome(switch=switch, why_none=Unpredicted(said=switch.unsized))
    if isinstance(base, Unpredicted):
        return SwitchOutcome(switch=switch, why_none=base)
    found = rate(changed(job, switch.change), switch.change)
    if isinstance(found, Unpredicted):
        return SwitchOutcome(switch=switch, why_none=found)
    value = found.value / base.value
    hosts = _spread_of_hosts(job, switch.change, value, other_hosts)
    gain = _all_of([spread_of(job, switch.group), hosts]).around(value)
    return SwitchOutcome(switch=switch, rate_per_s=found, gain=gain)


def _spread_of_hosts(job: Job, change: SwitchChange, gain: float, hosts: Sequence[Rate]) -> Spread:
    """How far the gain lies from itself on slower and on faster hosts: nothing where the device binds with the switch
    and without it, all of it where the switch hands the step over to the host."""
    factors = [1.0]
    for rate in hosts:
        before, after = rate(job, SwitchChange()), rate(changed(job, change), change)
        if isinstance(before, Figure) and isinstance(after, Figure):
            factors.append(after.value / before.value / gain)
    return Spread(low_factor=min(factors), high_factor=max(factors))


def predict_together(
    job: Job,
    outcomes: Sequence[SwitchOutcome],
    rate: Rate,
    base: Figure | Unpredicted,
    spread_of: SpreadOf,
    other_hosts: Sequence[Rate] = (),
) -> Together | None:
    """The best switch of each group, one after the other, each kept where it helps on top of those before it.

    None where nothing can be predicted or nothing helps.
    """
    if isinstance(base, Unpredicted):
        return None
    helping = sorted(
        (one for one in outcomes if one.gain is not None and one.gain.value > 1.0),
        key=lambda one: (-(one.gain.value if one.gain else 0.0), one.switch.name),
    )
    names: list[str] = []
    groups: set[Group] = set()
    change, best = SwitchChange(), base
    for one in helping:
        if one.switch.group in groups:
            continue
        tried = one.switch.change.over(change)
        found = rate(changed(job, tried), tried)
        if isinstance(found, Unpredicted) or found.value < best.value * WORTH:
            continue
        names.append(one.switch.name)
        groups.add(one.switch.group)
        change, best = tried, found
    if not names:
        return None
    spreads = [spread_of(job, one.switch.group) for one in helping if one.switch.name in names]
    gain = best.value / base.value
    hosts = _spread_of_hosts(job, change, gain, other_hosts)
    return Together(names=tuple(names), rate_per_s=best, gain=_all_of([*spreads, hosts]).around(gain))


def processor_rate(job: Job, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    """Samples a second of a training, or texts a second of an encoder's passes, one text of the mean length each.

    Where the profile cannot say, the reason in its own words.
    """
    try:
        if isinstance(job, TrainJob):
            return _training_rate(job, change, profile)
        if isinstance(job, (ServeJob, BatchJob)):
            return _encoder_rate(job, change, profile)
    except InputError as error:
        return Unpredicted(said=error.message)
    return Unpredicted(said="tables are not timed on a processor")


def _training_rate(job: TrainJob, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    made = predict_local(job, profile, threads=change.threads)
    if change.allocator is None:
        return made.samples_per_s
    if change.allocator != "glibc-keeping":
        return Unpredicted(said=f"no curve holds {change.allocator}")
    seconds = [(one.operation, profile.seconds(one, made.work.threads)) for one in made.work.operations()]
    fresh, whole = sum(taken for name, taken in seconds if name == FRESH), sum(taken for _, taken in seconds)
    return made.samples_per_s.scaled(whole / (whole - fresh))


def _encoder_rate(job: ServeJob | BatchJob, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    """`workers` passes beside one another, one thread each. What they share (memory, caches) is in the curves."""
    if change.allocator is not None:
        return Unpredicted(said="curves of passes do not tell fresh memory apart")
    if change.runtime == "torch":
        return Unpredicted(said="no curve of a device profile holds PyTorch's forward passes")
    precision, workers = change.weights or encoder_format(job), change.workers or 1
    check_passes(profile, job.model, precision)
    tokens = max(round(job.requests.input_tokens.mean), 1)
    taken_s = pass_seconds(profile, job.model, texts=1, tokens=tokens, busy=workers, precision=precision)
    reach = exp(NORMAL_80 * combined_log_sd(profile.time_log_sd, profile.busy_log_sd))
    rate = workers / taken_s
    return Figure(value=rate, low=rate / reach, high=rate * reach)


def encoder_format(job: ServeJob | BatchJob) -> str:
    """What an encoder is computed in on a processor: as the file says where that is fp32 or int8. The formats of GPUs
    (fp16 is the default of a file) have no fast products there, and their work is done in fp32."""
    return job.weights if job.weights in ("fp32", "int8") else "fp32"


def _all_of(spreads: Sequence[Spread]) -> Spread:
    """Independent errors of factors that are multiplied: logarithms of the ends add in squares."""
    return Spread(
        low_factor=exp(-hypot(*(log(one.low_factor) for one in spreads))),
        high_factor=exp(hypot(*(log(one.high_factor) for one in spreads))),
    )
