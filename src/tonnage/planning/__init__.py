"""Workload x catalog x prices -> ranked plans, and why each other candidate fell out.

Each name loads on first use: who reads a plan needs no planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
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
__getattr__ = lazy_names(__name__)
