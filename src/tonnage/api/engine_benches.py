"""The same work on several engines: `tonnage.bench_run`, `tonnage.bench_clean`, `tonnage.bench_setup`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, MissingExtra, TonnageError, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.benchmarks.engines.folder import BenchFolder
    from tonnage.side_by_side.result import BenchResult
    from tonnage.side_by_side.spec import BenchSpec

OnProgress = Callable[[str], None]
SETUPS: Final = ("h2o", "sparkling", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunOptions(Options):
    """How a bench goes on, and where its report is written."""

    resume: bool = option(
        "--resume", "Go on with a bench that was stopped or killed: finished cells stay.", default=False
    )
    fresh: bool = option("--fresh", "Forget the cells of an earlier bench of this name.", default=False)
    dry_run: bool = option("--dry-run", "Check file, engines and data; measure nothing.", default=False)
    html: str | None = option(
        "--html", "Write the report here too. [default: report.html in the bench's folder alone]", default=None,
        metavar="FILE",
    )  # fmt: skip
    pdf: str | None = option("--pdf", "Write the report here as PDF; needs tonnage[report].", default=None,
                             metavar="FILE")  # fmt: skip
    rows: str | None = option("--rows", "Write the measured rows here, CSV.", default=None, metavar="FILE")


def bench_run(
    file: str,
    options: BenchRunOptions | None = None,
    *,
    settings: Settings | None = None,
    on_step: OnProgress | None = None,
) -> Answer[BenchResult]:
    """Carry out a bench file: each engine on each data set, repeated, each in a process of its own.

    The answer's fault is set where no cell came to its end. Raises WorkloadError for the file, InputError for data and
    options that cannot be used; KeyboardInterrupt passes after the worker has been ended.
    """
    from tonnage.benchmarks.engines.folder import BenchFolder
    from tonnage.benchmarks.engines.session import carry_out, heap_warnings, prepare_all, result_of
    from tonnage.monitoring.machine_health import DevicePower
    from tonnage.reports.engine_bench import engine_bench_report
    from tonnage.side_by_side.reading import load_bench

    options, settings = options or BenchRunOptions(), settings or current_settings()
    if options.resume and options.fresh:
        raise InputError("--resume and --fresh contradict each other", hint="give one of them")
    for flag, asked in (("--html", options.html), ("--pdf", options.pdf), ("--rows", options.rows)):
        if options.dry_run and asked is not None:
            raise InputError(f"{flag} has nothing to write: --dry-run measures nothing", hint=f"leave out {flag}, "
                             "or --dry-run; the predictions are in what a dry run prints")  # fmt: skip
    if options.pdf is not None and find_spec("typst") is None:
        raise MissingExtra("a PDF report", "report")  # before anything is measured
    spec = _priced(load_bench(Path(file)), settings)
    folder = BenchFolder(benches_folder(settings.home) / spec.name)
    with folder.held():
        if options.fresh:
            _forget(folder)
        if not options.dry_run or not folder.journal.is_file():
            folder.begin(spec, resume=options.resume or options.dry_run)
        if options.dry_run:
            tables = prepare_all(spec, folder)
            found = result_of(spec, folder, tables, settings.home)
            remarks = (*_lacking(spec, settings), *heap_warnings(spec, tables), _predicted(found))
            return Answer(found, engine_bench_report, remarks=remarks)
        try:
            found = carry_out(spec, folder, settings.home, say=on_step or _silent, open_power=DevicePower)
        except KeyboardInterrupt:
            if folder.cells():
                so_far = result_of(spec, folder, prepare_all(spec, folder), settings.home)
                _write(Answer(so_far, engine_bench_report), folder, options)
            (on_step or _silent)("stopped: finished cells are kept, and --resume goes on")
            raise
        answer = Answer(
            found, engine_bench_report, _fault(found), remarks=(f"report: {folder.report}", _way_back(folder))
        )
        _write(answer, folder, options)
    return answer


def bench_clean(name: str | None = None, *, settings: Settings | None = None) -> list[str]:
    """End processes that killed benches left, and remove their tables and workers' folders; a line a bench.

    Journals and reports stay. A bench that runs is left alone and named.
    """
    from tonnage.benchmarks.engines.folder import BenchFolder
    from tonnage.benchmarks.engines.session import clean_bench
    from tonnage.reports.wording import plural, render_gib
    from tonnage.units import to_gib

    folder = benches_folder((settings or current_settings()).home)
    names = [name] if name else sorted(one.name for one in folder.glob("*") if one.is_dir())
    if name and not (folder / name).is_dir():
        raise InputError(f"no bench is named '{name}'", hint=f"those of {folder}")
    said = []
    for one in names:
        try:
            ended, freed = clean_bench(BenchFolder(folder / one))
        except InputError as error:
            said.append(f"{one}: left alone: {error}")
            continue
        if ended or freed or name:
            size = f"{render_gib(to_gib(freed))} freed" if freed else "nothing to free"
            said.append(f"{one}: {plural(ended, 'process')} ended, {size}")
    return said or ["nothing to clean"]


def bench_setup(
    what: str,
    *,
    packages: Sequence[str] = (),
    settings: Settings | None = None,
    on_step: OnProgress | None = None,
) -> Path:
    """An environment for H2O, Sparkling Water or Ray, tried with a small bench before it counts as ready; its folder.

    `packages`: requirements in place of its own of the same package, as the versions of a cluster are.

    Raises InputError for an unknown name and for Java that is missing or of another version, TonnageError where the
    packages cannot be installed or the trial fails.
    """
    from tonnage.benchmarks.engines.environments import (
        environments_folder,
        java_fault,
        make_environment,
        needs_java,
    )

    say, settings = on_step or _silent, settings or current_settings()
    if what not in SETUPS:
        raise InputError(f"nothing to set up is named '{what}'", hint=f"one of {', '.join(SETUPS)}")
    kind = cast("Literal['h2o', 'sparkling', 'ray']", what)
    fault = java_fault() if needs_java(kind) else None
    if fault is not None:
        raise InputError(fault, hint="H2O runs on Java 8 to 17")
    begun = time.monotonic()
    say(f"{what}: packages")
    folder = make_environment(kind, settings.home, packages)
    ready = environments_folder(settings.home) / kind / "ready"
    ready.write_text("", encoding="utf-8")  # the trial asks for it
    say(f"{what}: trial")
    try:
        _try(kind, settings)
    except BaseException:
        ready.unlink()
        raise
    ready.write_text(f"{time.monotonic() - begun:.1f}\n", encoding="utf-8")  # `setup_s` reads it
    return folder


def _try(kind: str, settings: Settings) -> None:
    """The smoke test: the models of the environment (and its AutoML) on a small table, on two workers with Spark or
    Ray."""
    from tempfile import TemporaryDirectory

    from tonnage.benchmarks.engines.folder import BenchFolder
    from tonnage.benchmarks.engines.session import carry_out
    from tonnage.side_by_side.reading import read_bench

    shared = "threads: 2, memory_gib: 1.5" if kind == "h2o" else "threads: 2, workers: 2, memory_gib: 1.5"
    models = {"gbm": "rounds: 5", "xgboost": "rounds: 5", "automl": "models: 1"}
    if kind == "ray":
        models = {"xgboost": "rounds: 5", "pytorch": "epochs: 2"}
    engines = ", ".join(f"{{engine: {kind}-{one}, {more}, {shared}}}" for one, more in models.items())
    spec = read_bench(
        "{bench: {name: smoke-test, repeats: 1, data: [{name: small, generate: {rows: 3000, columns: 8}}], "
        f"engines: [{engines}]}}}}"
    )
    with TemporaryDirectory(prefix="tonnage-bench-") as place:
        found = carry_out(spec, BenchFolder(Path(place)), settings.home, say=_silent)
    failed = [cell for cell in found.cells if cell.reason is not None]
    if failed:
        raise TonnageError(
            f"the trial of {failed[0].engine} failed: {failed[0].reason}", hint="the environment is not used"
        )


def _priced(spec: BenchSpec, settings: Settings) -> BenchSpec:
    """The bench with the price of its instance type on demand. InputError where the catalog has none."""
    if spec.instance is None:
        return spec
    from tonnage.api.catalogs import load_catalog

    catalog = load_catalog(settings=settings)
    offers = [
        one for one in catalog.offers
        if one.instance_type == spec.instance and one.purchase == "on_demand" and spec.region in (None, one.region)
    ]  # fmt: skip
    if not offers:
        where = f" in {spec.region}" if spec.region else ""
        like = ", ".join(nearest(spec.instance, {one.instance_type for one in catalog.offers}))
        raise InputError(f"the catalog has no price on demand of '{spec.instance}'{where}", hint=f"near it: {like}")
    best = min(offers, key=lambda one: one.usd_per_instance_hour)
    note = f"{best.provider} {best.instance_type} in {best.region or 'every region'}, on demand, read {best.read_on}"
    return replace(spec, usd_per_hour=float(best.usd_per_instance_hour), price_note=note)


def benches_folder(home: Path) -> Path:
    """Where benches of engines keep their journals and reports."""
    return home / "benches"


def _forget(folder: BenchFolder) -> None:
    for one in folder.path.iterdir():
        if one.name == "lock":
            continue
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def _way_back(folder: BenchFolder) -> str:
    """How the rows correct the next prediction."""
    return (
        f"rows: {folder.path / 'rows.csv'}; `tonnage calibrate --tabular` with this file (repeated for those of other "
        "benches) corrects plans of `kind: tabular` and the next bench"
    )


def _lacking(spec: BenchSpec, settings: Settings) -> tuple[str, ...]:
    from tonnage.benchmarks.engines.lacking import lacking
    from tonnage.reports.wording import plural

    every = [(engine.name, lacking(engine, settings.home)) for engine in spec.engines]
    found = dict.fromkeys(
        lack if lack.startswith(name) else f"{name}: {lack}" for name, lack in every if lack is not None
    )
    cells = (
        f"{plural(len(spec.cells()), 'cell')} would run: {plural(len(spec.engines), 'engine')}, "
        f"{plural(len(spec.data), 'data set')}"
    )
    searched: tuple[str, ...] = ()
    if spec.search is not None:
        from tonnage.reports.bench_search import said_budget

        count = sum(bool(engine.space) for engine in spec.engines)
        searched = (f"before them a search with {said_budget(spec.search)} for each of {count} engines and data set",)
        if find_spec("optuna") is None:
            searched += ("the search needs Optuna: pip install 'tonnage[sweep]'",)
    return (cells, *searched, *found)


def _predicted(found: BenchResult) -> str:
    """How long the cells that are missing take, as far as that is predicted."""
    from tonnage.reports.wording import plural, render_duration

    left = [(row, found.spec.repeats - row.done) for row in found.rows if row.done < found.spec.repeats]
    known = sum(row.predicted_s.value * count for row, count in left if row.predicted_s is not None)
    unknown = sum(count for row, count in left if row.predicted_s is None)
    said = f"predicted: {render_duration(known)} of preparing and training; start-up and warm-up come on top"
    return said + (f", and {plural(unknown, 'cell')} that nothing predicts" if unknown else "")


def _write(answer: Answer[BenchResult], folder: BenchFolder, options: BenchRunOptions) -> None:
    from tonnage.files import save_for_user, write_whole
    from tonnage.reports.rendering import render_report

    page = render_report(answer.report(), "html")
    write_whole(folder.report, page)
    write_whole(folder.path / "report.json", answer.to_json())
    write_whole(folder.path / "rows.csv", answer.to_csv())
    if options.html is not None:
        save_for_user(Path(options.html), page)
    if options.pdf is not None:
        from tonnage.reports.page_pdf import page_pdf

        save_for_user(Path(options.pdf), page_pdf(answer.report().page(), made=datetime.now(UTC)))
    if options.rows is not None:
        save_for_user(Path(options.rows), answer.to_csv())


def _fault(found: BenchResult) -> TonnageError | None:
    if any(row.done for row in found.rows):
        return None
    return TonnageError("no cell came to its end", hint="the report names the reason of each")


def _silent(text: str) -> None:
    del text
