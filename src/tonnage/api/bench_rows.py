"""What a bench measured, kept: rows in the file that is asked for and in the store."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tonnage.api.bench import BenchServeOptions, read_lengths
from tonnage.api.local_service import predict_here
from tonnage.benchmarks.load.dialects import find_dialect
from tonnage.calibration.columns import INFERENCE_COLUMNS
from tonnage.calibration.prediction import JudgedRow
from tonnage.errors import InputError, UnknownName
from tonnage.files import make_private_folder, save_for_user
from tonnage.http.pool import read_endpoint
from tonnage.settings import Settings

if TYPE_CHECKING:
    from tonnage.traffic.bench import PredictedFigure, ServiceBench
    from tonnage.traffic.measured_rows import MeasuredService
    from tonnage.workload.jobs import Lengths, ServeJob
    from tonnage.workload.shapes import ModelShape


def keep_rows(
    bench: ServiceBench, job: ServeJob | None, options: BenchServeOptions, settings: Settings
) -> ServiceBench:
    """The bench with its rows, which are in the file and the store then. InputError: the file cannot be written."""
    from tonnage.traffic.measured_rows import inference_rows

    rows = tuple(inference_rows(bench.result, _service(bench, job, options), bench.began))
    if not rows:
        return bench
    on_profile = options.gpu is None  # this machine's processor is no accelerator of the catalog
    predicted, why_not = _predicted_here(bench, job, settings) if on_profile else _predicted(rows, settings)
    _save(rows, options.rows, settings)  # after the prediction: no bench corrects what it is held against
    return replace(bench, rows=rows, predicted=predicted, remarks=(*bench.remarks, *why_not))


def _service(bench: ServiceBench, job: ServeJob | None, options: BenchServeOptions) -> MeasuredService:
    from tonnage.traffic.measured_rows import MeasuredService

    local = read_endpoint(bench.url).host in ("localhost", "127.0.0.1", "::1")
    return MeasuredService(
        model=job.model.name if job else bench.model, shape=job.model if job else _known_shape(bench.model),
        generates=find_dialect(bench.protocol).generates, gpu=options.gpu or (_this_processor() if local else ""),
        gpus=options.gpus or (1 if local and options.gpu is None else None),
        tensor_parallel=job.tensor_parallel if job else None, engine=options.engine or (job and job.engine) or "",
        precision=options.precision or (job.weights if job else ""), weights="",
        input_asked=_asked(job, options), client_cpu_s=bench.client_cpu_s_per_request if local else None,
    )  # fmt: skip


def _asked(job: ServeJob | None, options: BenchServeOptions) -> Lengths | None:
    """The lengths that were drawn from; None for texts of a file and a trace's lengths."""
    if options.data is not None or options.trace is not None:
        return None
    if options.input_tokens is not None:
        return read_lengths("--input-tokens", options.input_tokens)
    return None if job is None else job.requests.input_tokens


def _predicted_here(
    bench: ServiceBench, job: ServeJob | None, settings: Settings
) -> tuple[tuple[PredictedFigure, ...], tuple[str, ...]]:
    """What this machine's profile predicts for the load, and what it does not predict."""
    from tonnage.reports.local_service import bench_words
    from tonnage.traffic.bench import PredictedFigure

    local = read_endpoint(bench.url).host in ("localhost", "127.0.0.1", "::1")
    if job is None or not local or job.requests.output_tokens is not None:
        return (), ()
    try:
        made = predict_here(job, settings, client_s=bench.client_cpu_s_per_request).found
    except InputError as error:
        return (), (f"not predicted: {error}",)
    result = bench.result
    figures = [("requests_per_s", result.requests_per_s, made.answered_per_s(result.offered_per_s), 1.0)]
    for share in ("p50", "p95") if result.latency is not None else ():
        seen = made.latency_s(share, result.offered_per_s)
        if seen is not None:
            figures.append((f"latency_ms_{share}", 1e3 * getattr(result.latency, share), seen, 1e3))
    late = () if len(figures) > 1 else ("latency is not predicted: at this rate the queue grows as long as it lasts",)
    found = tuple(
        PredictedFigure(metric=name, measured=measured, predicted=one.value * unit, low=one.low * unit,
                        high=one.high * unit)
        for name, measured, one, unit in figures
    )  # fmt: skip
    return found, (*late, f"predicted by {made.device}; benches that it stands on: {bench_words(made)}")


def _predicted(
    rows: Sequence[dict[str, str]], settings: Settings
) -> tuple[tuple[PredictedFigure, ...], tuple[str, ...]]:
    """What `validate inference` predicts for the rows, and why it does not predict the others."""
    from tonnage.api.catalogs import load_catalog
    from tonnage.calibration.intervals import Intervals
    from tonnage.calibration.kinds import judged_rows, kind_named
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
        spread = intervals.spread_of(row)
        low, high = row.predicted * spread.low_factor, row.predicted * spread.high_factor
        found.append(
            PredictedFigure(metric=row.metric, measured=row.measured, predicted=row.predicted, low=low, high=high)
        )
    reasons = sorted({one.reason for one in results if not isinstance(one, JudgedRow)})
    return tuple(found), tuple(f"not predicted: {reason}" for reason in reasons)


def _csv_text(rows: Sequence[dict[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, INFERENCE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _save(rows: Sequence[dict[str, str]], file: str | None, settings: Settings) -> None:
    """Rows into the file, where one is named, and into the store."""
    from tonnage.store import open_store

    if file is not None:
        save_for_user(Path(file), _csv_text(rows), hint="name another --rows")
    make_private_folder(settings.home)
    with open_store(settings.database_url) as store:
        store.add_measurements(rows, table="inference")


def _known_shape(model: str) -> ModelShape | None:
    """The known model of that name; None where there is none: the rows' shape is blank then."""
    from tonnage.workload.known import find_model

    try:
        return find_model(model)
    except UnknownName:
        return None


def _this_processor() -> str:
    from tonnage.benchmarks.machine import host_identity

    return host_identity().processor
