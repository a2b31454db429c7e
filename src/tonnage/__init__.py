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
    from tonnage.client import Client

__version__: Final = "0.1.0"
__all__ = [
    "Answer", "BackupOptions", "BatchOptions", "BedrockAccount", "BenchPlacesOptions", "BenchRunOptions",
    "BenchServeOptions", "BenchVectorsOptions", "BreakEvenOptions", "BudgetsReconcileOptions", "BundleOptions",
    "CalibrateOptions", "Client", "CustomiseOptions", "DeployOptions", "DiffOptions", "EvaluateOptions", "Explanation",
    "FetchOptions", "GainsOptions", "GatewayReconcileOptions", "GatewaySimilarOptions", "GatewaySimulateOptions",
    "GatewaySpendOptions", "GatewayTopOptions", "GpuListOptions", "ImageOptions", "ImportOptions", "InitOptions",
    "InstanceListOptions", "LocalOptions", "MigrateOptions", "OfferListOptions", "OptimiseOptions", "PipelineOptions",
    "PlanResult", "PredictOptions", "PrepareOptions", "ProvisionOptions", "RefreshOptions", "ResumeOptions",
    "RightsizeOptions", "RunOptions", "ScalingOptions", "ServeOptions", "ServiceUpdateOptions", "SizeResult",
    "UiOptions", "ValidateOptions", "WatchOptions", "WatchReplayOptions", "__version__", "audit_lines", "backup",
    "batch", "bedrock_customise", "bedrock_end", "bedrock_import", "bedrock_list", "bedrock_provision", "bench_clean",
    "bench_places", "bench_run", "bench_serve", "bench_setup", "bench_vectors", "breakeven", "budget_runs",
    "build_image", "calibrate", "calibrate_local", "calibrate_tabular", "check_budgets", "check_catalog",
    "check_deployed", "check_gateway", "check_watch", "compare", "compliance", "deploy_files", "describe_machine",
    "diff", "doctor", "errors", "evaluate", "explain_request", "export_local_rows", "export_watch", "fetch", "gains",
    "gateway_budgets", "gateway_key", "gateway_similarity", "gateway_spend", "gateway_top", "image_files",
    "import_litellm", "init", "list_budgets", "list_gpus", "list_instances", "list_metrics", "list_models",
    "list_offers", "list_services", "list_snapshots", "load_catalog", "load_workload", "make_ui_key", "migrate",
    "open_gateway", "open_ui", "open_watch", "optimise", "places_bundle", "plan", "planned_replica", "portfolio",
    "predict", "prepare", "price_history", "read_request_log", "reconcile_budgets", "reconcile_gateway", "refresh",
    "replay_watch", "restore", "resume", "revoke_ui_key", "rightsize", "rollback_service", "rotate_gateway_keys", "run",
    "run_pipeline", "serve", "show", "show_pipeline", "simulate_gateway", "simulate_scaling", "size", "snapshot_moves",
    "spot", "stop", "ui_keys", "update_service", "validate", "verify_audit", "verify_backup", "verify_fetched",
    "watch_metrics", "watch_status", "write_bundle", "write_image_files", "write_service_files",
]  # fmt: skip
__getattr__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)
