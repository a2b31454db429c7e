"""All kinds of misses: a closed set."""

from __future__ import annotations

from tonnage.planning.reasons.machine_misses import (
    BatchDivisionMiss,
    ConcurrencyMiss,
    GpuLimitMiss,
    LatencyMiss,
    MemoryMiss,
    NoFp8Miss,
    NoGpuMiss,
    NvidiaOnlyMiss,
    ReplicasMiss,
    SharedGpuMiss,
    UnmeasuredTreesMiss,
    UnpublishedMiss,
    WholeMachinesMiss,
)
from tonnage.planning.reasons.term_misses import (
    BudgetMiss,
    DeadlineMiss,
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
    UnknownFinishMiss,
    UnknownLatencyMiss,
    UnpricedMiss,
)

__all__ = [
    "BatchDivisionMiss",
    "BudgetMiss",
    "ConcurrencyMiss",
    "DeadlineMiss",
    "GpuLimitMiss",
    "InterruptibleMiss",
    "LatencyMiss",
    "MachineMiss",
    "MemoryMiss",
    "Miss",
    "NeverDoneMiss",
    "NoFp8Miss",
    "NoGpuMiss",
    "NoPriceMiss",
    "NoSpareMiss",
    "NotAllowedMiss",
    "NvidiaOnlyMiss",
    "OtherGpuMiss",
    "QuotaMiss",
    "ReplicasMiss",
    "ResidencyMiss",
    "SetAsidePriceMiss",
    "SharedGpuMiss",
    "SlowApiMiss",
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
    | WholeMachinesMiss
    | BatchDivisionMiss
    | ReplicasMiss
    | ConcurrencyMiss
    | NvidiaOnlyMiss
    | NoFp8Miss
    | UnmeasuredTreesMiss
)
Miss = TermMiss | MachineMiss
