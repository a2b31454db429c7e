"""What verbs are given: a catalog, a workload, a calibration, each from a file, a value or the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tonnage.api.catalogs import load_catalog
from tonnage.calibration.store import Calibration, read_calibration
from tonnage.calibration.tabular_file import load_tabular
from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.settings import Settings, current_settings
from tonnage.workload.file.mapping_values import as_document
from tonnage.workload.file.model_reference import FetchConfig
from tonnage.workload.file.yaml_lines import read_yaml
from tonnage.workload.jobs import Workload
from tonnage.workload.loading import CheckedFile, WorkloadText, check_workload, load_checked

WorkloadSource = Workload | WorkloadText | Mapping[str, Any] | str | Path
CalibrationSource = Calibration | Path | str
Clock = datetime | date | str
LARGEST_MARGIN = 0.5


def load_workload(
    source: Mapping[str, Any] | WorkloadText | str | Path,
    *,
    as_of: Clock | None = None,
    catalog: Catalog | None = None,
    settings: Settings | None = None,
) -> Workload:
    """A workload from a file, from YAML text (several lines) or from a mapping.

    Without a clock the work starts today, or now where its deadline is an instant.
    """
    settings = settings or current_settings(as_of=as_of)
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


def calibrated_model_of(
    calibration: CalibrationSource | None, memory_margin: float | None, settings: Settings
) -> CalibratedModel:
    """What predictions rest on: a calibration, and the share of device memory kept free where it is given."""
    if isinstance(calibration, Calibration):
        calibrated = CalibratedModel.of(calibration)
    elif (file := calibration or settings.calibration) is not None:
        calibrated = CalibratedModel.of(read_calibration(Path(file)))
    else:
        calibrated = CalibratedModel.packaged()
    calibrated = replace(calibrated, tabular=load_tabular(settings.home))
    if memory_margin is None:
        return calibrated
    if not 0 <= memory_margin <= LARGEST_MARGIN:  # NaN fails too
        raise InputError(
            f"found {memory_margin} for the memory margin, expected 0 to {LARGEST_MARGIN}",
            hint="it is the share of device memory kept free, such as 0.1",
        )
    return replace(calibrated, assumed=replace(calibrated.assumed, memory_margin_fraction=memory_margin))


def read_workload(source: WorkloadSource, as_of: Clock | None, catalog: Catalog, settings: Settings) -> Workload:
    """A workload as it is, else as `load_workload` reads it. InputError for a clock beside one that has its own."""
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
