"""All kinds of misses: a closed set."""

from __future__ import annotations

from tonnage.planning.reasons.machine_misses import (
    BatchDivisionMiss,
    ConcurrencyMiss,
    DegreesMiss,
    GpuLimitMiss,
    LatencyMiss,
    MemoryMiss,
    NodesMiss,
    NoFp8Miss,
    NoGpuMiss,
    NoMxfp4Miss,
    NvidiaOnlyMiss,
    PoolLinkMiss,
    PoolPromiseMiss,
    PoolSizesMiss,
    ReplicasMiss,
    SharedGpuMiss,
    UnmeasuredTreesMiss,
    UnpublishedMiss,
    WholeMachinesMiss,
)
from tonnage.planning.reasons.term_misses import (
    AccountQuotaMiss,
    BudgetMiss,
    DeadlineMiss,
    ExcludedMiss,
    InterruptibleMiss,
    NeverDoneMiss,
    NoPriceMiss,
    NoSpareMiss,
    NotAllowedMiss,
    OtherGpuMiss,
    QuotaMiss,
    ResidencyMiss,
    SetAsidePriceMiss,
    SlowApiMiss,
    SupersededPriceMiss,
    UnknownFinishMiss,
    UnknownLatencyMiss,
    UnpricedMiss,
)

__all__ = [
    "AccountQuotaMiss",
    "BatchDivisionMiss",
    "BudgetMiss",
    "ConcurrencyMiss",
    "DeadlineMiss",
    "DegreesMiss",
    "ExcludedMiss",
    "GpuLimitMiss",
    "InterruptibleMiss",
    "LatencyMiss",
    "MachineMiss",
    "MemoryMiss",
    "Miss",
    "NeverDoneMiss",
    "NoFp8Miss",
    "NoGpuMiss",
    "NoMxfp4Miss",
    "NoPriceMiss",
    "NoSpareMiss",
    "NodesMiss",
    "NotAllowedMiss",
    "NvidiaOnlyMiss",
    "OtherGpuMiss",
    "PoolLinkMiss",
    "PoolPromiseMiss",
    "PoolSizesMiss",
    "QuotaMiss",
    "ReplicasMiss",
    "ResidencyMiss",
    "SetAsidePriceMiss",
    "SharedGpuMiss",
    "SlowApiMiss",
    "SupersededPriceMiss",
    "TermMiss",
    "UnknownFinishMiss",
    "UnknownLatencyMiss",
    "UnmeasuredTreesMiss",
    "UnpricedMiss",
    "UnpublishedMiss",
    "WholeMachinesMiss",
]

TermMiss = (
    NotAllowedMiss
    | InterruptibleMiss
    | OtherGpuMiss
    | ResidencyMiss
    | NoPriceMiss
    | SetAsidePriceMiss
    | UnpricedMiss
    | UnknownLatencyMiss
    | SlowApiMiss
    | UnknownFinishMiss
    | QuotaMiss
    | DeadlineMiss
    | BudgetMiss
    | AccountQuotaMiss
    | SupersededPriceMiss
    | ExcludedMiss
    | NoSpareMiss
    | NeverDoneMiss
)
MachineMiss = (
    NoGpuMiss
    | SharedGpuMiss
    | UnpublishedMiss
    | MemoryMiss
    | LatencyMiss
    | GpuLimitMiss
    | PoolPromiseMiss
    | PoolSizesMiss
    | PoolLinkMiss
    | NodesMiss
    | WholeMachinesMiss
    | DegreesMiss
    | BatchDivisionMiss
    | ReplicasMiss
    | ConcurrencyMiss
    | NvidiaOnlyMiss
    | NoFp8Miss
    | NoMxfp4Miss
    | UnmeasuredTreesMiss
)
Miss = TermMiss | MachineMiss
