"""What a change costs a month: two versions of a workload file, or one file under two snapshots of prices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tonnage.api.catalogs import load_catalog
from tonnage.api.inputs import Clock, calibrated_model_of, check_source, clock_of, config_reader, started
from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.limits import check_limits
from tonnage.planning.plan import Plan
from tonnage.planning.planner import make_plan
from tonnage.planning.whatif.cost_change import (
    MOST_STEPS,
    NO_FILE,
    ChangeSide,
    CostChange,
    KeyStep,
    kept_usd,
    side_of,
    steps_of,
)
from tonnage.planning.whatif.key_changes import KeyChange, changed_keys, states_between
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass
from tonnage.workload.file.mapping_values import as_document
from tonnage.workload.loading import CheckedFile, WorkloadText, check_workload

VersionSource = Mapping[str, Any] | WorkloadText | str | Path
MOST_RUNS = 1e6


def diff(
    before: VersionSource | None,
    after: VersionSource | None,
    *,
    file: str = "",
    runs_per_month: float = 1.0,
    catalog: Catalog | Path | str | None = None,
    catalog_after: Catalog | Path | str | None = None,
    as_of: Clock | None = None,
    settings: Settings | None = None,
) -> CostChange:
    """What goes from `before` to `after` costs a month more or less, and which keys make it so.

    None stands for a file that is not there: a workload added or removed. A job's cost counts `runs_per_month` times.
    `catalog_after`: the prices of the second side, where they differ. InputError on what cannot be read.
    """
    if before is None and after is None:
        raise InputError("neither side names a workload", hint="name a workload file")
    if not 0 < runs_per_month <= MOST_RUNS:
        hint = f"expected a number above 0, at most {MOST_RUNS:,.0f}"
        raise InputError(f"found {runs_per_month} runs a month", hint=hint)
    settings = settings or current_settings(as_of=as_of)
    old = catalog if isinstance(catalog, Catalog) else load_catalog(catalog, settings=settings)
    new = old if catalog_after is None else _catalog(catalog_after, settings)
    desk = _Desk(settings, calibrated_model_of(None, None, settings), clock_of(settings), runs_per_month)
    return desk.compare(before, after, old, new, file=file)


def _catalog(given: Catalog | Path | str, settings: Settings) -> Catalog:
    return given if isinstance(given, Catalog) else load_catalog(given, settings=settings)


@dataclass(frozen=True, slots=True)
class _Desk:
    """Reads and plans one version after another, under the same settings and clock."""

    settings: Settings
    calibrated: CalibratedModel
    clock: datetime
    runs_per_month: float

    def compare(
        self, before: VersionSource | None, after: VersionSource | None, old: Catalog, new: Catalog, *, file: str
    ) -> CostChange:
        then = None if before is None else check_source(before, self.clock, old, self.settings)
        now = None if after is None else check_source(after, self.clock, new, self.settings)
        changes = _changes(then, now)
        first, last = self._side(then, old), self._side(now, new)
        kept = kept_usd(first[0], last[1]) if last[1] is not None else None
        steps: tuple[KeyStep, ...] = ()
        if then is not None and old is new and len(changes) <= MOST_STEPS:
            priced = self._priced(then, changes[:-1], _folder(after), new)
            steps = steps_of(first[0], last[0], changes, lambda change: priced[change.path])
        name = (now or then).name  # type: ignore[union-attr]  # one of them is there
        return CostChange(
            name=name, file=file, before=first[0], after=last[0], changes=changes, steps=steps, kept_usd=kept
        )

    def _side(self, checked: CheckedFile | None, catalog: Catalog) -> tuple[ChangeSide, Plan | None]:
        if checked is None:
            return NO_FILE, None
        workload = started(checked, self.clock, self.settings)
        check_limits(workload, catalog)
        age = self.settings.max_price_age_days
        plan = make_plan(workload, catalog, calibrated=self.calibrated, max_price_age_days=age)
        service = workload.is_service
        return side_of(plan, service=service, runs_per_month=self.runs_per_month), plan

    def _priced(
        self, then: CheckedFile, changes: tuple[KeyChange, ...], folder: Path, catalog: Catalog
    ) -> dict[tuple[str, ...], ChangeSide | None]:
        """The side after each key in turn; None where no such file can be."""
        found: dict[tuple[str, ...], ChangeSide | None] = {}
        for change, state in states_between(_entries(then), changes):
            try:
                checked = check_workload(
                    as_document(state),
                    folder=folder,
                    as_of=self.clock,
                    fetch_config=config_reader(self.settings),
                    catalog=catalog,
                )
                found[change.path] = self._side(checked, catalog)[0]
            except InputError:
                found[change.path] = None
        return found


def _changes(then: CheckedFile | None, now: CheckedFile | None) -> tuple[KeyChange, ...]:
    return () if then is None or now is None else changed_keys(_entries(then), _entries(now))


def _entries(checked: CheckedFile) -> Mapping[str, Any]:
    """The file's own keys and values. A file that was checked is a mapping."""
    value = checked.document.value
    assert isinstance(value, dict)
    return value


def _folder(source: VersionSource | None) -> Path:
    """Where relative model paths of a source start."""
    if isinstance(source, WorkloadText):
        return source.folder
    is_file = isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)
    return Path(source).parent if is_file else Path.cwd()  # type: ignore[arg-type]  # a name, as just found
