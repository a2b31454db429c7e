"""A job as tokens: how many an API would read, write, or learn from."""

from __future__ import annotations

from tonnage.values import dataclass
from tonnage.workload.jobs import Job, ServeJob, TabularJob, Tokens, TrainJob

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """Tokens of the whole job, of one month of a service."""

    input_tokens: float
    output_tokens: float
    training: bool = False
    read_alone: float | None = None  # input tokens where nothing is to be written (embeddings); None: the same

    @property
    def total_tokens(self) -> float:
        return self.input_tokens + self.output_tokens


def token_work(job: Job, tokens: Tokens) -> TokenWork | None:
    """The tokens of `job` at its mean lengths, of a service at its mean load; None for work on tables and images."""
    if isinstance(job, TrainJob):
        if job.model.architecture in ("vision-transformer", "convolution"):
            return None
        return TokenWork(input_tokens=job.samples * job.epochs * job.lengths.mean, output_tokens=0.0, training=True)
    if isinstance(job, TabularJob):
        return None
    count = job.requests_per_bill * (tokens.load if job.is_service else 1.0)
    read, written = tokens.of_request(job.requests)
    alone = None if job.requests.output_tokens is not None else count * job.requests.input_tokens.mean
    return TokenWork(input_tokens=count * read, output_tokens=count * written, read_alone=alone)


def tokens_per_minute(job: ServeJob, tokens: Tokens) -> float:
    """What a service asks of an API at its busy time."""
    return job.rate_per_s * sum(tokens.of_request(job.requests)) * 60
