"""Tonnage: which hardware, on which platform, bought how, and will it hold?

The verbs of the command line as functions (docs/python.md), `load_workload`, `load_catalog` and the module `errors`;
each loads on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage import errors
    from tonnage.api import (
        Answer,
        BreakEvenOptions,
        CalibrateOptions,
        EvaluateOptions,
        Explanation,
        FetchOptions,
        LocalOptions,
        PlanResult,
        PredictOptions,
        ResumeOptions,
        RightsizeOptions,
        RunOptions,
        SizeResult,
        ValidateOptions,
        breakeven,
        calibrate,
        calibrate_local,
        compare,
        diff,
        evaluate,
        export_local_rows,
        fetch,
        load_catalog,
        load_workload,
        plan,
        portfolio,
        predict,
        resume,
        rightsize,
        run,
        show,
        size,
        spot,
        stop,
        validate,
        verify_fetched,
    )

__version__: Final = "0.1.0"
__all__ = [
    "Answer",
    "BreakEvenOptions",
    "CalibrateOptions",
    "EvaluateOptions",
    "Explanation",
    "FetchOptions",
    "LocalOptions",
    "PlanResult",
    "PredictOptions",
    "ResumeOptions",
    "RightsizeOptions",
    "RunOptions",
    "SizeResult",
    "ValidateOptions",
    "__version__",
    "breakeven",
    "calibrate",
    "calibrate_local",
    "compare",
    "diff",
    "errors",
    "evaluate",
    "export_local_rows",
    "fetch",
    "load_catalog",
    "load_workload",
    "plan",
    "portfolio",
    "predict",
    "resume",
    "rightsize",
    "run",
    "show",
    "size",
    "spot",
    "stop",
    "validate",
    "verify_fetched",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("tonnage.errors")
    if name in __all__:
        return getattr(import_module("tonnage.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
