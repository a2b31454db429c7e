"""The portfolio file as pydantic reads it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tonnage.workload.file.fields import (
    Count,
    CountOrZero,
    Flag,
    Percent,
    Positive,
    Spelled,
    StrictModel,
    Usd,
    When,
    Word,
    key,
)
from tonnage.workload.file.terms_fields import Purchases

ShareNumber = Annotated[float, Field(ge=0, le=100), Spelled("number, 0 to 100")]
Shares = Annotated[dict[str, ShareNumber], Field(max_length=100), Spelled("provider: share")]
UsableShare = Annotated[float, Field(gt=0, le=100), Spelled("number above 0, at most 100")]


class EntryFields(StrictModel):
    """One workload of the portfolio."""

    file: Word = key("The workload file, from this file's folder.", example="bert-finetune.tonnage.yaml")
    name: Word | None = key("Its name here.", default=None, shown="the workload's own")
    runs_per_month: Count = key("How often it runs; a service once.", default=1, unit="runs", example="40")
    deadline: When | None = key("Replaces the file's own deadline.", default=None, shown="the file's", example="8h")
    split: Flag = key("Whether its runs may take several ways.", default=False, example="true")


class CapacityFields(StrictModel):
    """GPUs of a kind that may be held at a time: a quota, or what the region has."""

    gpu: Word = key("Which GPUs, in the GPU grammar without a count.", example="H100")
    at_once: CountOrZero = key("How many at a time.", unit="GPUs", example="16")
    provider: Word | None = key("At this provider.", default=None, shown="all together", example="aws")
    region: Word | None = key("In this region.", default=None, shown="all together", example="us-east-1")
    purchases: Purchases = key("Only those bought so.", default=(), shown="however bought", example="[spot]")


class CommitmentFields(StrictModel):
    """GPU-hours bought for the whole month at a reserved price."""

    provider: Word = key("Who sells it.", example="aws")
    gpu: Word | None = key("The GPU it is for.", default=None, shown="that of `instance_type`", example="A100-80GB")
    instance_type: Word | None = key("Only this machine.", default=None, shown="every machine with that GPU")
    region: Word | None = key("Only there.", default=None, shown="everywhere", example="us-east-1")
    usd_per_gpu_hour: Positive | None = key(
        "The reserved price.", default=None, shown="the catalog's reserved_1y price of `instance_type`", unit="USD"
    )
    gpus: CountOrZero = key("Committed already.", default=0, unit="GPUs", example="8")
    up_to_gpus: CountOrZero | None = key("May be committed in all.", default=None, shown="`gpus`", unit="GPUs")
    usable_percent: UsableShare = key("Part of the hours that work can fill.", default=85.0, unit="percent")


class PortfolioFile(StrictModel):
    """Several workloads bought together."""

    name: Word | None = key("Name in reports.", default=None, shown="the file's name")
    workloads: Annotated[list[EntryFields], Field(min_length=1, max_length=1000)] = key("What is to be run.")
    shares: Shares = key(
        "Part of the spend per provider, together 100 (or 1). Providers not named get nothing.",
        default=dict,
        shown="no shares",
        example="{aws: 60, gcp: 30, azure: 10}",
    )
    share_tolerance_percent: Percent = key("How far a share may be off, either way.", default=5.0, unit="points")
    budget_usd: Usd | None = key("Most a month may cost.", default=None, shown="none", unit="USD")
    capacity: list[CapacityFields] = key("Quotas.", default=list, shown="none")
    reserved: list[CommitmentFields] = key("The reserved base.", default=list, shown="none")
