"""What someone wants to run: the model's shape, the job or the traffic, and what a plan for it must hold.

Public: `load_workload`, `parse_workload`, the frozen values of `jobs` and `shapes`. Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.workload.jobs import (
        BatchJob,
        BuyTerms,
        Constraints,
        Job,
        Lengths,
        Lora,
        Requests,
        ServeJob,
        TabularJob,
        Team,
        TrainJob,
        Workload,
    )
    from tonnage.workload.known import find_model, known_models
    from tonnage.workload.loading import load_workload, parse_workload
    from tonnage.workload.parameters import count_parameters
    from tonnage.workload.shapes import ModelShape

__all__ = [
    "BatchJob", "BuyTerms", "Constraints", "Job", "Lengths", "Lora", "ModelShape", "Requests", "ServeJob",
    "TabularJob", "Team", "TrainJob", "Workload", "count_parameters", "find_model", "known_models", "load_workload",
    "parse_workload",
]  # fmt: skip
__getattr__ = lazy_names(__name__)
