"""Workload x catalog x prices -> ranked plans, and why each other candidate fell out."""

from tonnage.planning.assumed import assumptions_used
from tonnage.planning.plan import CatalogStamp, Need, Objective, Option, Plan, Refusal, RunDetail
from tonnage.planning.planner import make_plan
from tonnage.planning.sizes import SizeMiss, SizeReport, SizeRow, make_size_report

__all__ = [
    "CatalogStamp",
    "Need",
    "Objective",
    "Option",
    "Plan",
    "Refusal",
    "RunDetail",
    "SizeMiss",
    "SizeReport",
    "SizeRow",
    "assumptions_used",
    "make_plan",
    "make_size_report",
]
