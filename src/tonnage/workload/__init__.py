"""What someone wants to run: the model's shape, the job or the traffic, and what a plan for it must hold.

Public: `load_workload`, `parse_workload`, the frozen values of `jobs` and `shapes`. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

_HOME: Final = {
    "BatchJob": "jobs",
    "BuyTerms": "jobs",
    "Constraints": "jobs",
    "Job": "jobs",
    "Lengths": "jobs",
    "Lora": "jobs",
    "ModelShape": "shapes",
    "Requests": "jobs",
    "ServeJob": "jobs",
    "TabularJob": "jobs",
    "Team": "jobs",
    "TrainJob": "jobs",
    "Workload": "jobs",
    "count_parameters": "parameters",
    "find_model": "known",
    "known_models": "known",
    "load_workload": "loading",
    "parse_workload": "loading",
}

__all__ = [
    "BatchJob",
    "BuyTerms",
    "Constraints",
    "Job",
    "Lengths",
    "Lora",
    "ModelShape",
    "Requests",
    "ServeJob",
    "TabularJob",
    "Team",
    "TrainJob",
    "Workload",
    "count_parameters",
    "find_model",
    "known_models",
    "load_workload",
    "parse_workload",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
