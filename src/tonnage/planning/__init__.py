"""Workload x catalog x prices -> ranked plans, and why each other candidate fell out."""

from tonnage.planning.assumed import assumptions_used
from tonnage.planning.plan import (
    CatalogStamp,
    MachineOption,
    Need,
    Objective,
    Option,
    Plan,
    Refusal,
    RunDetail,
    TokenOption,
)
from tonnage.planning.planner import make_plan
from tonnage.planning.sizes import SizeMiss, SizeReport, SizeRow, make_size_report

__all__ = [
    "CatalogStamp", "MachineOption", "Need", "Objective", "Option", "Plan", "Refusal", "RunDetail", "SizeMiss",
    "SizeReport", "SizeRow", "TokenOption", "assumptions_used", "make_plan", "make_size_report",
]  # fmt: skip
