"""An encoder service, or a batch of texts, on a device that was measured here: latency, rate held, and their intervals.

The queue of the server is simulated over the profile's curves; benches of services on the device correct how slow its
batches are and narrow the interval (`calibration.local_inference`). All is values in, values out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from tonnage.calibration.local_inference import (
    ENGINE,
    REPEATS,
    BenchedLoad,
    EncoderWork,
    bench_observations,
    encoder_queue,
    service_curve,
    time_parts,
)
from tonnage.calibration.local_profile import DeviceProfile, combined_log_sd
from tonnage.calibration.local_update import condition, shares_of
from tonnage.errors import InputError
from tonnage.planning.reasons.misses import DeadlineMiss, LatencyMiss, Miss, NodesMiss
from tonnage.sizing.encoder_queue import EncoderQueue, LatencyCurve
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, Constraints, ServeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalService:
    """What one server of an encoder is expected to do on a measured device. Figures carry their 80 % interval.

    `slower`: how many times as slow its batches are as the curves say, learnt from benches (1 without any).
    """

    device: str
    job: ServeJob | BatchJob
    queue: EncoderQueue
    curve: LatencyCurve
    slower: Figure
    saturation_per_s: Figure
    parts_s: tuple[tuple[str, float], ...]  # of one text of the mean length, alone, before benches correct them
    own_benches: tuple[str, ...]  # of this service, that correct it
    other_benches: tuple[str, ...]  # of other models on this device and engine: they correct what is common

    @property
    def workers(self) -> int:
        return self.queue.workers

    @property
    def promise_s(self) -> float | None:
        return self.job.promises.get("latency")

    @property
    def holds_per_s(self) -> Figure:
        """The highest rate of one server inside its promise; its saturation where nothing is promised."""
        value, fast, slow = (
            self.curve.largest_rate(self.promise_s, one)
            for one in (self.slower.value, self.slower.low, self.slower.high)
        )
        return Figure(value=value, low=slow, high=fast)

    def latency_s(self, share: str, rate_per_s: float) -> Figure | None:
        """A percentile at a rate; `high` is infinite where the slow end of the interval cannot follow the rate, None
        where the rate is over what is expected to be held."""
        value, low, high = (
            self.curve.latency_s(share, rate_per_s, one)
            for one in (self.slower.value, self.slower.low, self.slower.high)
        )
        if value is None or low is None:
            return None
        return Figure(value=value, low=low, high=inf if high is None else high)

    def answered_per_s(self, rate_per_s: float) -> Figure:
        """Answers a second where so many requests come."""
        ends = (min(rate_per_s, getattr(self.saturation_per_s, end)) for end in ("value", "low", "high"))
        value, low, high = ends
        return Figure(value=value, low=low, high=high)


def served_work(job: ServeJob | BatchJob) -> EncoderWork:
    """What the service's seconds depend on. InputError for a job that writes tokens."""
    if job.requests.output_tokens is not None:
        raise InputError(f"{job.model.name} writes tokens; a local profile holds encoders")
    return EncoderWork(
        shape=job.model, lengths=job.requests.input_tokens, precision=job.weights, engine=job.engine or ENGINE,
        p95_s=job.promises.get("latency"),
    )  # fmt: skip


def predict_service(
    job: ServeJob | BatchJob, profile: DeviceProfile, benches: Sequence[BenchedLoad] = (), *, client_s: float = 0.0
) -> LocalService:
    """One server of `job` on the device of `profile`, corrected by `benches` of that device. `client_s`: processor
    seconds a request that a client takes of the same cores.

    Raises InputError where the profile's curves do not hold the service.
    """
    work = served_work(job)
    queue = encoder_queue(profile, work, client_s=client_s)
    curve = service_curve(profile, work, client_s)
    parts = time_parts(profile, work)
    seen = bench_observations(profile, benches)
    prior = combined_log_sd(profile.time_log_sd, profile.busy_log_sd)
    repeat = min((one.noise_log_sd for one in seen), default=REPEATS)
    belief = condition(seen, prior, shares_of(parts), work.configuration, "serve")
    slower = belief.around(1.0, repeat)
    own = tuple(one.id for one in benches if one.work.configuration == work.configuration)
    return LocalService(
        device=profile.name, job=job, queue=queue, curve=curve, slower=slower,
        saturation_per_s=Figure(
            value=curve.saturation_per_s / slower.value, low=curve.saturation_per_s / slower.high,
            high=curve.saturation_per_s / slower.low,
        ),
        parts_s=tuple(parts.items()), own_benches=own,
        other_benches=tuple(one.id for one in benches if one.id not in own),
    )  # fmt: skip


def broken_service_limits(made: LocalService, constraints: Constraints) -> tuple[Miss, ...]:
    """What one server on the device does not hold: the promise by itself, the rate, or a batch's deadline."""
    job, holds = made.job, made.holds_per_s
    held = holds.low if constraints.held("latency") else holds.value
    if isinstance(job, BatchJob):
        run_s = job.items / made.saturation_per_s.value
        late = constraints.deadline_s is not None and run_s > constraints.deadline_s
        return (DeadlineMiss(needed_s=run_s, deadline_s=constraints.deadline_s or 0.0),) if late else ()
    if held <= 0:
        alone = made.latency_s("p95", 1e-3)
        best = inf if alone is None else alone.value
        return (LatencyMiss(promise="latency", best_s=best, promised_s=job.p95_latency_s or 0.0, lifted_by=()),)
    if job.rate_per_s <= held:
        return ()
    return (NodesMiss(needed_nodes=ceil(job.rate_per_s / held), allowed_nodes=1, rate_per_s=job.rate_per_s),)
