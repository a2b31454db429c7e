"""What a bench measured, kept: rows in the file that is asked for and in the store."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tonnage.api.bench import BenchServeOptions
from tonnage.settings import Settings

if TYPE_CHECKING:
    from tonnage.traffic.bench import PredictedFigure, ServiceBench
    from tonnage.traffic.measured_rows import MeasuredService
    from tonnage.workload.jobs import ServeJob
    from tonnage.workload.shapes import ModelShape


def keep_rows(
    bench: ServiceBench, job: ServeJob | None, options: BenchServeOptions, settings: Settings
) -> ServiceBench:
    """The bench with its rows, which are in the file and the store then. InputError: the file cannot be written."""
    from tonnage.traffic.measured_rows import inference_rows

    rows = tuple(inference_rows(bench.result, _service(bench, job, options), bench.began))
    if not rows:
        return bench
    _save(rows, options.rows, settings)
    if options.gpu is None:  # this machine's processor is no accelerator of the catalog
        return replace(bench, rows=rows)
    predicted, why_not = _predicted(rows, settings)
    return replace(bench, rows=rows, predicted=predicted, remarks=(*bench.remarks, *why_not))


def _service(bench: ServiceBench, job: ServeJob | None, options: BenchServeOptions) -> MeasuredService:
    from tonnage.benchmarks.load.dialects import find_dialect
    from tonnage.http.pool import read_endpoint
    from tonnage.traffic.measured_rows import MeasuredService

    local = read_endpoint(bench.url).host in ("localhost", "127.0.0.1", "::1")
    return MeasuredService(
        model=job.model.name if job else bench.model, shape=job.model if job else _known_shape(bench.model),
        generates=find_dialect(bench.protocol).generates, gpu=options.gpu or (_this_processor() if local else ""),
        gpus=options.gpus or (1 if local and options.gpu is None else None),
        tensor_parallel=job.tensor_parallel if job else None, engine=options.engine or (job and job.engine) or "",
        precision=options.precision or (job.weights if job else ""), weights="",
    )  # fmt: skip


def _predicted(
    rows: Sequence[dict[str, str]], settings: Settings
) -> tuple[tuple[PredictedFigure, ...], tuple[str, ...]]:
    """What `validate inference` predicts for the rows, and why it does not predict the others."""
    from tonnage.api.inputs import load_catalog
    from tonnage.calibration.intervals import Intervals
    from tonnage.calibration.kinds import judged_rows, kind_named
    from tonnage.calibration.prediction import JudgedRow
    from tonnage.calibration.store import load_calibration, read_calibration
    from tonnage.traffic.bench import PredictedFigure

    catalog, kind = load_catalog(settings=settings), kind_named("inference")
    known = load_calibration() if settings.calibration is None else read_calibration(settings.calibration)
    intervals = Intervals() if known is None else known.intervals
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        file.write_text(_csv_text(rows), encoding="utf-8")
        fitted, seen = (None, {}) if known is None else (known.inference, known.names_seen("inference"))
        results = list(judged_rows(kind, kind.read(file, catalog), catalog, fitted, seen=seen))
    found = []
    for row in (one for one in results if isinstance(one, JudgedRow)):
        spread = intervals.spread(row.group, row.unseen_factors, row.foreign)
        low, high = row.predicted * spread.low_factor, row.predicted * spread.high_factor
        found.append(
            PredictedFigure(metric=row.metric, measured=row.measured, predicted=row.predicted, low=low, high=high)
        )
    reasons = sorted({one.reason for one in results if not isinstance(one, JudgedRow)})
    return tuple(found), tuple(f"not predicted: {reason}" for reason in reasons)


def _csv_text(rows: Sequence[dict[str, str]]) -> str:
    from tonnage.calibration.columns import INFERENCE_COLUMNS

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, INFERENCE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _save(rows: Sequence[dict[str, str]], file: str | None, settings: Settings) -> None:
    """Rows into the file, where one is named, and into the store."""
    from tonnage.files import make_private_folder, save_for_user
    from tonnage.store import open_store

    if file is not None:
        save_for_user(Path(file), _csv_text(rows), hint="name another --rows")
    make_private_folder(settings.home)
    with open_store(settings.database_url) as store:
        store.add_measurements(rows, table="inference")


def _known_shape(model: str) -> ModelShape | None:
    """The known model of that name; None where there is none: the rows' shape is blank then."""
    from tonnage.errors import UnknownName
    from tonnage.workload.known import find_model

    try:
        return find_model(model)
    except UnknownName:
        return None


def _this_processor() -> str:
    from tonnage.benchmarks.machine import host_identity

    return host_identity().processor
