"""The keys of a gateway file that say how requests are repeated, wait, and are asked twice."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from tonnage.workload.file.fields import Count, Duration, Flag, Percent, Positive, Spelled, StrictModel, Word
from tonnage.workload.file.fields import key as entry


def _p95(value: object) -> object:
    return None if value == "p95" else value


Share = Annotated[float, Field(gt=0, le=100), Spelled("number above 0, at most 100")]
HedgeAfter = Annotated[Duration | None, BeforeValidator(_p95), Spelled("p95 or duration")]


class SemanticEntry(StrictModel):
    """Answers are given again to questions that mean the same: all else of the request must be equal, and the
    numbers in the question. `tonnage gateway similar` measures which similarity is safe."""

    deployment: Word = entry("Who makes embeddings: OpenAI's /embeddings, as `tonnage serve` and TEI speak it.")
    at_least: Annotated[float, Field(gt=0, le=1), Spelled("number above 0, at most 1")] = entry(
        "The cosine of both questions from which they mean the same.", default=0.97
    )
    most_chars: Count = entry(
        "Longer questions are not compared: models of embeddings read the beginning alone.", default=600
    )


class IdempotencyEntry(StrictModel):
    """Requests with an `Idempotency-Key`: a repeat of the same key and body gets the first one's answer."""

    on: Flag = entry("Whether the header is followed; false: it is ignored.", default=True)
    ttl: Duration = entry("How long an answer is kept in the store.", default=86_400.0, shown="1d")
    largest_mb: Positive = entry("The largest answer that is kept; a repeat of a larger one gets 409.", default=4.0)


class QueueEntry(StrictModel):
    """Requests wait for a place where a limit of requests at a time is reached, in place of a refusal."""

    places: Count = entry("How many may wait at one limit, in each worker.", default=100)
    longest: Duration = entry("How long a request may wait, where its client does not say less.", default=10.0,
                              shown="10s")  # fmt: skip


class HedgeEntry(StrictModel):
    """A second deployment is asked where the first is slow to begin; who begins first answers, both are paid."""

    after: HedgeAfter = entry(
        "Without a first byte for so long; p95: the 95th percentile of the deployment's own, once 20 are known.",
        default=None, shown="p95",
    )  # fmt: skip
    share_percent: Percent = entry("Hedges may be so many of the route's requests of the last minute.", default=5.0)


class CanaryEntry(StrictModel):
    """A share of the requests goes to a new deployment first; the route's own follow where it fails."""

    deployment: Word = entry("The new one, which the route does not name otherwise.")
    percent: Share = entry("The share of conversations that try it.", default=5.0)
    stop_percent: Percent = entry(
        "It gets no more where more of its last 200 attempts fail, once there are 20.", default=10.0
    )


class ShadowEntry(StrictModel):
    """Requests are asked of another deployment too, whose answers are compared and go nowhere."""

    deployment: Word = entry("The other one.")
    percent: Share = entry("The share of requests.", default=10.0)
    at_once: Count = entry("At most so many at a time in a worker; others are skipped.", default=8)
