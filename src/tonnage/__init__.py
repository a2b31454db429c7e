"""Tonnage: which hardware, on which platform, bought how, and will it hold?

The verbs of the command line as functions (docs/python.md), `load_workload`, `load_catalog` and the module `errors`;
each loads on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage import errors
    from tonnage.api import *

__version__: Final = "0.1.0"
__all__ = [
    "Answer", "BackupOptions", "BatchOptions", "BenchServeOptions", "BreakEvenOptions", "CalibrateOptions",
    "EvaluateOptions", "Explanation", "FetchOptions", "GainsOptions", "GatewayReconcileOptions",
    "GatewaySimilarOptions", "GatewaySimulateOptions", "GatewaySpendOptions", "GatewayTopOptions", "LocalOptions",
    "PipelineOptions", "PlanResult", "PredictOptions", "ResumeOptions", "RightsizeOptions", "RunOptions",
    "ScalingOptions", "ServeOptions", "SizeResult", "ValidateOptions", "WatchOptions", "WatchReplayOptions",
    "__version__", "audit_lines", "backup", "batch", "bench_serve", "breakeven", "calibrate", "calibrate_local",
    "check_gateway", "check_watch", "compare", "diff", "errors", "evaluate", "explain_request", "export_local_rows",
    "export_watch", "fetch", "gains", "gateway_key", "gateway_similarity", "gateway_spend", "gateway_top",
    "import_litellm", "load_catalog", "load_workload", "open_gateway", "open_watch", "plan", "planned_replica",
    "portfolio", "predict", "reconcile_gateway", "replay_watch", "restore", "resume", "rightsize", "run",
    "run_pipeline", "serve", "show", "show_pipeline", "simulate_gateway", "simulate_scaling", "size", "spot", "stop",
    "validate", "verify_backup", "verify_fetched", "watch_metrics", "watch_status", "write_service_files",
]  # fmt: skip
__getattr__ = lazy_names(__name__, {".errors": (), "tonnage.api": __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
