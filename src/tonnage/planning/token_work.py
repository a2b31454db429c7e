"""A job as tokens: how many an API would read, write, or learn from."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TrainJob

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """Tokens of the whole job, of one month of a service."""

    input_tokens: float
    output_tokens: float
    training: bool = False

    @property
    def total_tokens(self) -> float:
        return self.input_tokens + self.output_tokens


def token_work(job: Job, load: float = 1.0) -> TokenWork | None:
    """The tokens of `job` at its mean lengths; None for work on tables and images. `load`: a service's mean rate over
    its busy rate."""
    if isinstance(job, TrainJob):
        if job.model.architecture in ("vision-transformer", "convolution"):
            return None
        return TokenWork(input_tokens=job.samples * job.epochs * job.lengths.mean, output_tokens=0.0, training=True)
    if not isinstance(job, ServeJob | BatchJob):
        return None
    count = _requests(job) * (load if isinstance(job, ServeJob) else 1.0)
    answer = job.requests.output_tokens
    written = 0.0 if answer is None else count * answer.mean
    return TokenWork(input_tokens=count * job.requests.input_tokens.mean, output_tokens=written)


def _requests(job: ServeJob | BatchJob) -> float:
    """Requests in all; of a service in a month at its busy rate."""
    if isinstance(job, BatchJob):
        return float(job.items)
    return job.rate_per_s * job.hours_per_month * SECONDS_PER_HOUR


def tokens_per_minute(job: ServeJob) -> float:
    """What a service asks of an API at its busy time."""
    answer = job.requests.output_tokens
    each = job.requests.input_tokens.mean + (0.0 if answer is None else answer.mean)
    return job.rate_per_s * each * 60
