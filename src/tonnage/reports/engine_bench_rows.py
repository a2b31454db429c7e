"""A bench of engines as a JSON document, and as rows in the columns of measured rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.bench_faster import faster_document, left_document
from tonnage.reports.bench_search import (
    ease_document,
    said_settings,
    scaling_document,
    search_document,
)
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.faster import faster_on, not_compared
from tonnage.side_by_side.result import POWER_FIGURES, BenchResult, EngineResult, engine_of, rate_of
from tonnage.side_by_side.scaling import scaling_points
from tonnage.side_by_side.searches import with_budget
from tonnage.side_by_side.spec import EngineSpec, cluster_of

SCHEMA: Final = "tonnage/engine-bench@1"
# The columns of measured training rows (docs/measured-rows.md) that work on tables has a value for.
ROW_COLUMNS: Final = (
    "id", "config_id", "source", "model", "gpu", "n_gpus", "global_batch", "precision", "method", "metric", "value",
    "note",
)  # fmt: skip
FIGURES: Final = (
    "work_s", "alone_s", "train_s", "prepare_s", "startup_s", "warmup_s", "rows_per_s", "quality", "to_target_s",
    "usd_to_target", "cores_used", "peak_rss_bytes", "predicted_s", "predicted_bytes", *POWER_FIGURES,
)  # fmt: skip


def bench_document(found: BenchResult) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": found.spec.name,
        "cells_done": len(found.cells),
        "cells_asked": found.cells_asked,
        "usd_per_hour": plain_number(found.spec.usd_per_hour),
        "processor": found.host.processor,
        "sessions": [dict(one) for one in found.sessions],
        "threads": found.host.logical_cores,
        "data": [
            {"name": one.name, "task": one.task, "metric": one.metric, "target": plain_number(one.target),
             "train_rows": found.shapes[one.name][0], "columns": found.shapes[one.name][1],
             "digests": dict(found.digests[one.name])}
            for one in found.spec.data
        ],
        "engines": [_row_document(row) for row in found.rows],
        "search": search_document(found.spec, found.searches),
        "faster": faster_document([pair for one in found.spec.data for pair in faster_on(found, one)]),
        "not_compared": left_document([left for one in found.spec.data for left in not_compared(found, one)]),
        "ease": ease_document(found.ease),
        "scaling": scaling_document(scaling_points(found.spec, found.cells)),
    }  # fmt: skip


def _row_document(row: EngineResult) -> dict[str, Any]:
    figures = {name: plain_figure(getattr(row, name)) for name in FIGURES}
    return {
        "data": row.data.name, "name": row.engine.name, "engine": row.engine.engine, "threads": row.engine.threads,
        "train_rows": row.train_rows, "throttled_by": row.throttled_by,
        "settings": None if row.settings is None else dict(row.settings),
        "workers": row.engine.workers,
        "predicted_by_tables": row.predicted_by_tables, "devices": list(row.engine.devices), "done": row.done,
        "failed": row.failed, "reason": row.reason, "reached_target": row.reached, **figures,
        "curve": [[plain_number(seconds), plain_number(value)] for seconds, value in row.curve],
        "versions": dict(row.versions or {}),
    }  # fmt: skip


def bench_rows(found: BenchResult) -> Iterator[list[Any]]:
    """One row a figure of a finished cell, in the columns of measured rows."""
    engines = {one.name: one for one in found.spec.engines}
    for cell in found.cells:
        if cell.reason is not None or cell.engine not in engines:
            continue
        engine = with_budget(engine_of(cell, engines[cell.engine]), found.spec)
        figures = {"train_s": cell.train_s, "work_s": cell.work_s, "rows_per_s": rate_of(cell, engine),
                   "quality": cell.quality, "peak_memory_bytes": cell.peak_rss_bytes,
                   **_known_power(cell)}  # fmt: skip
        about = _about(found, cell, engine)
        gpus = len(engine.devices) or None
        batch = engine.batch if engine.family == "mlp" else None
        device = _device(found, engine)
        config = f"{found.spec.name}/{cell.data}/{cell.engine}"
        for metric, value in figures.items():
            yield [f"{config}/{cell.turn + 1}/{metric}", config, "tonnage bench", engine.engine, device, gpus, batch,
                   "fp32", engine.family, metric, value, about]  # fmt: skip
    yield from _search_rows(found)


def _known_power(cell: BenchCell) -> dict[str, float]:
    """Clocks, power and energy; what the system does not tell has no row."""
    every = {name: getattr(cell.power, name, None) for name in POWER_FIGURES}
    return {name: value for name, value in every.items() if value is not None}


def _search_rows(found: BenchResult) -> Iterator[list[Any]]:
    """A row for the quality and one for the seconds of each trial of a search; a trial that failed has its seconds."""
    engines = {one.name: one for one in found.spec.engines}
    for search in found.searches:
        engine = engines[search.engine]
        for trial in search.trials:
            config = f"{found.spec.name}/{search.data}/{search.engine}/trial-{trial.number}"
            note = f"data={search.data}; trial={trial.number}; settings={said_settings(trial.settings) or 'as given'}"
            note += "" if trial.reason is None else f"; failed={trial.reason}"
            for metric, value in (("search_quality", trial.quality), ("search_s", trial.spent_s)):
                if value is not None:
                    yield [f"{config}/{metric}", config, "tonnage bench", engine.engine, _device(found, engine),
                           len(engine.devices) or None, None, "fp32", engine.family, metric, value, note]  # fmt: skip


def _device(found: BenchResult, engine: EngineSpec) -> str:
    card = found.host.gpu_of(engine)
    if engine.master is not None:
        return f"{cluster_of(engine.engine)} cluster {engine.master}"
    return card.name if card is not None else ",".join(engine.devices) or found.host.processor


def _about(found: BenchResult, cell: BenchCell, engine: EngineSpec) -> str:
    """What the columns of measured rows have no place for; `calibration.tabular_rows` reads it back."""
    count, columns = found.shapes[cell.data]
    count = cell.train_rows or count  # a share of them in weak scaling
    job = engine.tabular_job(count, columns, found.facts.get(cell.data))
    said: dict[str, Any] = {
        "data": cell.data, "rows": count, "columns": columns, "threads": engine.threads, "workers": engine.workers,
        "threads_per_core": f"{found.host.threads_per_core:g}", "arm": "yes" if found.host.arm else "no",
        "repeat": cell.turn + 1, "passes": engine.passes,
    }  # fmt: skip
    if job is None:
        said |= {"models": engine.models if engine.search_s is None else None, "search_s": engine.search_s}
    elif engine.family == "mlp":
        said |= {"hidden": "x".join(map(str, engine.hidden)), "batch": engine.batch}
    else:
        said |= {"trees": job.trees, "depth": job.depth, "bins": job.bins}
    if cell.settings is not None:
        said["settings"] = said_settings(cell.settings) or "as given"
    if cell.power is not None and cell.power.throttled_by is not None:
        said["throttled_by"] = cell.power.throttled_by or "nothing"
    if cell.busy_before_cores is not None:
        said["busy_cores"] = f"{cell.busy_before_cores:.2f}"
    if cell.busy_during_cores is not None:
        said["busy_during_cores"] = f"{cell.busy_during_cores:.2f}"
    return "; ".join(f"{key}={value}" for key, value in said.items() if value is not None)
