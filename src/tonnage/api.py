"""The Python API: the command line's verbs as functions that return values a notebook can show.

>>> import tonnage
>>> result = tonnage.plan({"kind": "train", "model": "bert-base-uncased",
...     "data": {"samples": 1000, "seq_len": 128, "epochs": 1}}, as_of="2026-11-20", max_gpus=1)
>>> result.options[0].rank
1
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.calibration.store import Calibration, read_calibration
from tonnage.catalog import Catalog
from tonnage.catalog import load_catalog as load_snapshot
from tonnage.catalog.loading import read_meta, snapshot_folders
from tonnage.errors import InputError
from tonnage.overrides import override_constraints, parse_override_gpus
from tonnage.planning import Objective, Option, Plan, Refusal, SizeReport, assumptions_used, make_plan, make_size_report
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.flips import Planner, flips_of
from tonnage.planning.limits import check_limits
from tonnage.planning.reasons.flips import Flip
from tonnage.planning.scenario import Scenario
from tonnage.reports.plan import plan_report
from tonnage.reports.rendering import Report, render_report
from tonnage.settings import Settings, load_settings
from tonnage.sizing.assumption_table import Assumption
from tonnage.values import dataclass
from tonnage.workload.file.mapping_values import as_document
from tonnage.workload.file.model_reference import FetchConfig
from tonnage.workload.file.yaml_lines import read_yaml
from tonnage.workload.forced_layout import force_layout
from tonnage.workload.jobs import Workload
from tonnage.workload.loading import CheckedFile, WorkloadText, check_workload, load_checked

if TYPE_CHECKING:
    from tonnage.comparison.comparing import Comparison
    from tonnage.reports.frames import Library

WorkloadSource = Workload | Mapping[str, Any] | str | Path
Clock = datetime | date | str
LARGEST_MARGIN = 0.5


@dataclass(frozen=True, slots=True)
class _Result:
    """What a report can do in Python and in a notebook."""

    def _report(self) -> Report:
        raise NotImplementedError

    def to_json(self) -> str:
        """The same text as `-o json`."""
        return render_report(self._report(), "json")

    def to_csv(self) -> str:
        """The same text as `-o csv`."""
        return render_report(self._report(), "csv")

    def to_markdown(self) -> str:
        """The same text as `-o md`."""
        return render_report(self._report(), "md")

    def to_frame(self, library: Library | None = None) -> Any:
        """One row an option (a machine, for a size), as pandas or polars; MissingExtra where neither is installed."""
        from tonnage.reports.frames import make_frame

        report = self._report()
        return make_frame(report.columns, report.rows(), library)

    def __str__(self) -> str:
        return render_report(self._report(), "table")

    def _repr_html_(self) -> str:
        from tonnage.reports.html import render_html

        return render_html(self._report().page(), fragment=True)


@dataclass(frozen=True, slots=True)
class PlanResult(_Result):
    """A plan, with the catalog and the assumptions it stands on. `top` options are shown, all are held."""

    plan: Plan
    catalog: Catalog
    assumptions: tuple[Assumption, ...]
    scenario: Scenario
    planner: Planner = field(repr=False)
    top: int = 10

    def flips(self, loser: Option | Refusal) -> tuple[Flip, ...]:
        """The smallest change in each dimension that makes `loser` win (an option, where it was refused), tried."""
        return flips_of(loser, self.plan, self.scenario, self.planner)

    @property
    def best(self) -> Option | None:
        return self.plan.best

    @property
    def options(self) -> tuple[Option, ...]:
        return self.plan.options

    @property
    def refused(self) -> tuple[Refusal, ...]:
        return self.plan.refused

    def explain(self, name: str | None = None) -> Explanation:
        """Why it came out so, or what became of `name`; UnknownName with the nearest where there is no such thing."""
        return Explanation(self, name)

    def _report(self) -> Report:
        return plan_report(self.plan, top=self.top)


@dataclass(frozen=True, slots=True)
class Explanation(_Result):
    """The answer of `explain`: the winner in full, or one instance type, GPU or provider."""

    result: PlanResult
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:  # an unknown name is told now, not when it is shown
            from tonnage.reports.selection import select_candidates

            select_candidates(self.result.plan, self.result.catalog, self.name)

    def _report(self) -> Report:
        from tonnage.reports.explain import explain_report
        from tonnage.reports.selection import select_candidates

        plan, catalog, name = self.result.plan, self.result.catalog, self.name
        selection = None if name is None else select_candidates(plan, catalog, name)
        return explain_report(plan, selection, self.result.assumptions, top=self.result.top)


@dataclass(frozen=True, slots=True)
class SizeResult(_Result):
    """What the job needs and the machines that hold it."""

    size: SizeReport
    every_row: bool = False
    top: int = 30

    def _report(self) -> Report:
        from tonnage.reports.size import size_report

        return size_report(self.size, top=self.top, every_row=self.every_row)


def load_catalog(folder: Path | str | None = None, *, settings: Settings | None = None) -> Catalog:
    """The snapshot in `folder`; else the one the settings name, else the newest of those at home and the built-in."""
    if folder is not None:
        return load_snapshot(Path(folder))
    settings = settings or settings_of()
    if settings.catalog is not None:
        return load_snapshot(settings.catalog)
    return load_snapshot(newest_snapshot(settings.home))


def snapshot_order(path: Path) -> tuple[date, datetime, str]:
    """By day, then by the moment where it is stated, then by name."""
    meta = read_meta(path)
    return (meta.built_on, meta.built_at or datetime.min.replace(tzinfo=UTC), path.parent.name)


def newest_snapshot(home: Path) -> Path | None:
    """The newest imported snapshot, None where the built-in one is newer."""
    folder = home / "snapshots"
    found = sorted(folder.glob("[!.]*/snapshot.toml")) if folder.is_dir() else []
    if not found:
        return None
    newest = max(found, key=snapshot_order)
    built_in = read_meta(snapshot_folders()[-1] / "snapshot.toml").built_on
    return newest.parent if read_meta(newest).built_on >= built_in else None


def load_workload(
    source: Mapping[str, Any] | str | Path,
    *,
    as_of: Clock | None = None,
    catalog: Catalog | None = None,
    settings: Settings | None = None,
) -> Workload:
    """A workload from a file, from YAML text (several lines) or from a mapping.

    Without a clock the work starts today, or now where its deadline is an instant.
    """
    settings = settings or settings_of(as_of)
    catalog = catalog or load_catalog(settings=settings)
    clock = clock_of(settings)
    return started(check_source(source, clock, catalog, settings), clock, settings)


def clock_of(settings: Settings) -> datetime:
    """The clock that files are held against: as set, else now, to the minute."""
    return settings.as_of or datetime.now(UTC).replace(second=0, microsecond=0)


def started(checked: CheckedFile, clock: datetime, settings: Settings) -> Workload:
    """The workload under a clock as set; else it starts today, or now where its deadline is an instant."""
    at_clock = checked.starting(clock)
    if settings.as_of is not None:
        return at_clock
    at_today = checked.starting(clock.replace(hour=0, minute=0))
    return at_today if at_today.constraints == at_clock.constraints else at_clock


def plan(
    workload: WorkloadSource,
    *,
    rank: Objective = "cost",
    catalog: Catalog | Path | str | None = None,
    as_of: Clock | None = None,
    calibration: Calibration | Path | str | None = None,
    layout: str | None = None,
    memory_margin: float | None = None,
    max_price_age_days: int | None = None,
    top: int = 10,
    settings: Settings | None = None,
    **constraints: Any,
) -> PlanResult:
    """Rank every way to do the work. `constraints` replace the workload's: providers, platforms, regions, gpus,
    deadline, budget_usd, residency, interruptible, max_gpus, max_nodes.

    `calibration` (a file, say) gives the fitted figures and intervals; by default the settings' one, else the packaged.
    `layout` ('tp=2,pp=2,micro_batch=4') goes before the workload's own. `memory_margin` is the share of device memory
    kept free (0 to 0.5). A plan where nothing fits has no options.
    """
    if rank not in ("cost", "time", "pareto"):
        raise InputError(f"cannot rank by '{rank}'", hint="one of cost, time, pareto")
    if top < 1:
        raise InputError(f"found {top} for top, expected 1 or more")
    settings = settings or settings_of(as_of)
    market = catalog if isinstance(catalog, Catalog) else load_catalog(catalog, settings=settings)
    job = override_constraints(_workload(workload, as_of, market, settings), market, **constraints)
    job = job if layout is None else force_layout(job, layout)
    calibrated = grounds_of(calibration, memory_margin, settings)
    age = settings.max_price_age_days if max_price_age_days is None else max_price_age_days
    check_limits(job, market)

    def planner(work: Workload, offered: Catalog) -> Plan:
        return make_plan(work, offered, objective=rank, calibrated=calibrated, max_price_age_days=age)

    scenario = Scenario(workload=job, catalog=market)
    return PlanResult(planner(job, market), market, assumptions_used(job, calibrated), scenario, planner, top)


def size(
    workload: WorkloadSource,
    *,
    gpus: str | tuple[str, ...] | list[str] = (),
    catalog: Catalog | Path | str | None = None,
    as_of: Clock | None = None,
    calibration: Calibration | Path | str | None = None,
    layout: str | None = None,
    memory_margin: float | None = None,
    top: int = 30,
    settings: Settings | None = None,
) -> SizeResult:
    """What the job needs, and how it runs on each kind of machine (or on those of `gpus`), without prices.

    `layout` ('tp=2,pp=2,micro_batch=4') goes before the workload's own.
    """
    settings = settings or settings_of(as_of)
    market = catalog if isinstance(catalog, Catalog) else load_catalog(catalog, settings=settings)
    filters = parse_override_gpus(gpus, market)
    job = _workload(workload, as_of, market, settings)
    job = job if layout is None else force_layout(job, layout)
    made = make_size_report(job, market, gpus=filters, calibrated=grounds_of(calibration, memory_margin, settings))
    return SizeResult(made, every_row=bool(filters), top=top)


def compare(
    file: Path | str,
    *,
    profile_folders: Sequence[Path] = (),
    catalog: Catalog | Path | str | None = None,
    as_of: Clock | None = None,
    calibration: Calibration | Path | str | None = None,
    memory_margin: float | None = None,
    settings: Settings | None = None,
) -> Comparison:
    """Compare platforms as a compare file asks; profiles of `profile_folders` join the packaged ones."""
    from tonnage.comparison.comparing import compare as compare_all
    from tonnage.comparison.request import load_request

    settings = settings or settings_of(as_of)
    market = catalog if isinstance(catalog, Catalog) else load_catalog(catalog, settings=settings)
    request = load_request(file, profile_folders=profile_folders)
    read = [load_workload(work.file, catalog=market, settings=settings) for work in request.works]
    named = [
        one if work.name is None else replace(one, name=work.name)
        for work, one in zip(request.works, read, strict=True)
    ]
    calibrated = grounds_of(calibration, memory_margin, settings)

    for job in named:
        check_limits(job, market)

    def planner(workload: Workload, offers: Catalog) -> Plan:
        return make_plan(
            workload, offers, objective="cost", calibrated=calibrated, max_price_age_days=settings.max_price_age_days
        )

    assumed = {one.name: one for job in named for one in assumptions_used(job, calibrated)}
    now = settings.as_of or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return compare_all(request, named, market, planner, as_of=now, assumptions=tuple(assumed.values()))


def grounds_of(
    calibration: Calibration | Path | str | None, memory_margin: float | None, settings: Settings
) -> CalibratedModel:
    """What predictions stand on: a calibration, and the share of device memory kept free where it is given."""
    if isinstance(calibration, Calibration):
        calibrated = CalibratedModel.of(calibration)
    elif (file := calibration or settings.calibration) is not None:
        calibrated = CalibratedModel.of(read_calibration(Path(file)))
    else:
        calibrated = CalibratedModel.packaged()
    if memory_margin is None:
        return calibrated
    if not 0 <= memory_margin <= LARGEST_MARGIN:  # NaN fails too
        raise InputError(
            f"found {memory_margin} for the memory margin, expected 0 to {LARGEST_MARGIN}",
            hint="it is the share of device memory kept free, such as 0.1",
        )
    return replace(calibrated, assumed=replace(calibrated.assumed, memory_margin_fraction=memory_margin))


def settings_of(as_of: Clock | None = None) -> Settings:
    """The settings of the environment and the files, with a clock where one is given."""
    return load_settings({"as_of": as_of}, os.environ, Path.cwd())


def _workload(source: WorkloadSource, as_of: Clock | None, catalog: Catalog, settings: Settings) -> Workload:
    if not isinstance(source, Workload):
        return load_workload(source, catalog=catalog, settings=settings)
    if as_of is not None:
        raise InputError("this workload has its clock already", hint="give as_of to load_workload")
    return source


def config_reader(settings: Settings) -> FetchConfig:
    """Reads the config.json of an `hf://` model, through the cache at home."""

    def fetch(repository: str) -> Mapping[str, Any]:
        from tonnage.sources.huggingface import HuggingFaceConfigs

        configs = HuggingFaceConfigs.from_environment(settings.home / "huggingface", os.environ)
        return configs.fetch(repository)

    return fetch


def check_source(
    source: Mapping[str, Any] | WorkloadText | str | Path, clock: datetime, catalog: Catalog, settings: Settings
) -> CheckedFile:
    """The checked entries of a file, a text or a mapping."""
    fetch = config_reader(settings)
    folder = Path.cwd()
    if isinstance(source, WorkloadText):
        document, folder = read_yaml(source.text, file=source.file), source.folder
    elif isinstance(source, Mapping):
        document = as_document(source)
    elif isinstance(source, str) and "\n" in source:
        document = read_yaml(source)
    else:
        return load_checked(Path(source), as_of=clock, fetch_config=fetch, catalog=catalog)
    return check_workload(document, folder=folder, as_of=clock, fetch_config=fetch, catalog=catalog)


__all__ = [
    "Catalog",
    "Explanation",
    "PlanResult",
    "SizeResult",
    "compare",
    "load_catalog",
    "load_workload",
    "plan",
    "size",
]
