"""The Python API: the command line's verbs as functions that return values a notebook can show.

>>> import tonnage
>>> result = tonnage.plan({"kind": "train", "model": "bert-base-uncased",
...     "data": {"samples": 1000, "seq_len": 128, "epochs": 1}}, as_of="2026-11-20", max_gpus=1)
>>> result.options[0].rank
1

A name loads its module on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.api import spot
    from tonnage.api.answers import Answer, Result
    from tonnage.api.audits import verify_audit
    from tonnage.api.backups import BackupOptions, backup, restore, verify_backup
    from tonnage.api.batch_options import BatchOptions
    from tonnage.api.batches import batch
    from tonnage.api.bedrock import (
        BedrockAccount,
        CustomiseOptions,
        ImportOptions,
        ProvisionOptions,
        bedrock_customise,
        bedrock_end,
        bedrock_import,
        bedrock_list,
        bedrock_provision,
    )
    from tonnage.api.bench import BenchServeOptions, bench_serve
    from tonnage.api.bill_reconciling import BudgetsReconcileOptions, reconcile_budgets
    from tonnage.api.bundling import BundleOptions, places_bundle, write_bundle
    from tonnage.api.catalog_lists import (
        GpuListOptions,
        InstanceListOptions,
        OfferListOptions,
        check_catalog,
        describe_machine,
        list_gpus,
        list_instances,
        list_models,
        list_offers,
        list_services,
    )
    from tonnage.api.catalogs import load_catalog, newest_snapshot, snapshot_order
    from tonnage.api.changed_files import DiffOptions, diff_files
    from tonnage.api.complying import compliance
    from tonnage.api.deploying import DeployOptions, check_deployed, deploy_files
    from tonnage.api.disk_filling import FillOptions, fill_place
    from tonnage.api.downloads import FetchOptions, fetch, verify_fetched
    from tonnage.api.economics import BreakEvenOptions, breakeven
    from tonnage.api.engine_benches import BenchRunOptions, bench_clean, bench_run, bench_setup
    from tonnage.api.examining import doctor
    from tonnage.api.gateway import (
        GatewayTopOptions,
        check_gateway,
        gateway_key,
        gateway_top,
        import_litellm,
        open_gateway,
    )
    from tonnage.api.gateway_accounts import (
        GatewayReconcileOptions,
        GatewaySimulateOptions,
        GatewaySpendOptions,
        explain_request,
        gateway_budgets,
        gateway_spend,
        reconcile_gateway,
        simulate_gateway,
    )
    from tonnage.api.gateway_keys import read_request_log, rotate_gateway_keys
    from tonnage.api.images import ImageOptions, build_image, image_files, write_image_files
    from tonnage.api.inputs import calibrated_model_of, load_workload
    from tonnage.api.judging import CalibrateOptions, ValidateOptions, calibrate, calibrate_tabular, validate
    from tonnage.api.local import LocalOptions, calibrate_local, export_local_rows
    from tonnage.api.logging_in import check_server, log_in, log_out
    from tonnage.api.machines import RightsizeOptions, rightsize
    from tonnage.api.migrating import MigrateOptions, migrate
    from tonnage.api.optimising import OptimiseOptions, optimise
    from tonnage.api.pages import UiOptions, make_ui_key, open_ui, revoke_ui_key, ui_keys
    from tonnage.api.place_benches import BenchPlacesOptions, bench_places
    from tonnage.api.place_verbs import check_place, collect_run, exec_in_run, orphans, place_terraform, places
    from tonnage.api.plans import Explanation, PlanResult, SizeResult, compare, plan, size
    from tonnage.api.portfolios import portfolio
    from tonnage.api.preparing import PrepareOptions, prepare
    from tonnage.api.promised_gains import GainsOptions, gains
    from tonnage.api.question_pairs import GatewaySimilarOptions, gateway_similarity
    from tonnage.api.refreshing import RefreshOptions, refresh
    from tonnage.api.runs import ResumeOptions, RunOptions, resume, run, show, stop
    from tonnage.api.scaling import ScalingOptions, simulate_scaling
    from tonnage.api.service_files import write_service_files
    from tonnage.api.service_updates import ServiceUpdateOptions, rollback_service, update_service
    from tonnage.api.serving import ServeOptions, planned_replica
    from tonnage.api.snapshots import list_snapshots, price_history, snapshot_moves
    from tonnage.api.started_services import serve
    from tonnage.api.starting import InitOptions, init
    from tonnage.api.steps import PipelineOptions, run_pipeline, show_pipeline
    from tonnage.api.team_budgets import budget_runs, check_budgets, list_budgets
    from tonnage.api.trained import EvaluateOptions, PredictOptions, evaluate, predict
    from tonnage.api.vector_benches import BenchVectorsOptions, bench_vectors
    from tonnage.api.watch import (
        WatchOptions,
        WatchReplayOptions,
        audit_lines,
        check_watch,
        export_watch,
        list_metrics,
        open_watch,
        replay_watch,
        watch_metrics,
        watch_status,
    )
    from tonnage.diffing import diff

__all__ = [
    "Answer", "BackupOptions", "BatchOptions", "BedrockAccount", "BenchPlacesOptions", "BenchRunOptions",
    "BenchServeOptions", "BenchVectorsOptions", "BreakEvenOptions", "BudgetsReconcileOptions", "BundleOptions",
    "CalibrateOptions", "CustomiseOptions", "DeployOptions", "DiffOptions", "EvaluateOptions", "Explanation",
    "FetchOptions", "FillOptions", "GainsOptions", "GatewayReconcileOptions", "GatewaySimilarOptions",
    "GatewaySimulateOptions", "GatewaySpendOptions", "GatewayTopOptions", "GpuListOptions", "ImageOptions",
    "ImportOptions", "InitOptions", "InstanceListOptions", "LocalOptions", "MigrateOptions", "OfferListOptions",
    "OptimiseOptions", "PipelineOptions", "PlanResult", "PredictOptions", "PrepareOptions", "ProvisionOptions",
    "RefreshOptions", "Result", "ResumeOptions", "RightsizeOptions", "RunOptions", "ScalingOptions", "ServeOptions",
    "ServiceUpdateOptions", "SizeResult", "UiOptions", "ValidateOptions", "WatchOptions", "WatchReplayOptions",
    "audit_lines", "backup", "batch", "bedrock_customise", "bedrock_end", "bedrock_import", "bedrock_list",
    "bedrock_provision", "bench_clean", "bench_places", "bench_run", "bench_serve", "bench_setup", "bench_vectors",
    "breakeven", "budget_runs", "build_image", "calibrate", "calibrate_local", "calibrate_tabular",
    "calibrated_model_of", "check_budgets", "check_catalog", "check_deployed", "check_gateway", "check_place",
    "check_server", "check_watch", "collect_run", "compare", "compliance", "deploy_files", "describe_machine", "diff",
    "diff_files", "doctor", "evaluate", "exec_in_run", "explain_request", "export_local_rows", "export_watch", "fetch",
    "fill_place", "gains", "gateway_budgets", "gateway_key", "gateway_similarity", "gateway_spend", "gateway_top",
    "image_files", "import_litellm", "init", "list_budgets", "list_gpus", "list_instances", "list_metrics",
    "list_models", "list_offers", "list_services", "list_snapshots", "load_catalog", "load_workload", "log_in",
    "log_out", "make_ui_key", "migrate", "newest_snapshot", "open_gateway", "open_ui", "open_watch", "optimise",
    "orphans", "place_terraform", "places", "places_bundle", "plan", "planned_replica", "portfolio", "predict",
    "prepare", "price_history", "read_request_log", "reconcile_budgets", "reconcile_gateway", "refresh", "replay_watch",
    "restore", "resume", "revoke_ui_key", "rightsize", "rollback_service", "rotate_gateway_keys", "run", "run_pipeline",
    "serve", "show", "show_pipeline", "simulate_gateway", "simulate_scaling", "size", "snapshot_moves",
    "snapshot_order", "spot", "stop", "ui_keys", "update_service", "validate", "verify_audit", "verify_backup",
    "verify_fetched", "watch_metrics", "watch_status", "write_bundle", "write_image_files", "write_service_files",
]  # fmt: skip
__getattr__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)
