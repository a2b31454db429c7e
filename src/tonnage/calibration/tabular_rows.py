"""Measured work on tables, as `tonnage bench --rows` writes it: the columns of measured training rows, read back.

`model` is the engine, `gpu` the processor or the GPU, `method` trees or mlp, `metric` what was measured. What the
columns have no place for is in `note`: rows, columns, passes, trees, depth, bins, hidden, batch, threads,
threads_per_core, arm, workers, data, repeat, busy_cores. Seconds of work (`work_s`: preparing and training) are what a
fit uses.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.calibration.prediction import SkippedRow
from tonnage.errors import InputError
from tonnage.sizing.tabular import CpuColumns, TabularEstimate, estimate_mlp_on_cpus, estimate_trees_on_cpus
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob

TIME_METRIC: Final = "work_s"
NEEDED: Final = ("id", "config_id", "model", "gpu", "method", "metric", "value", "note")
HOST_BYTES: Final = 2.0**60  # memory does not enter the seconds
MOST_BYTES: Final = 256 * 2**20
METHODS: Final[Mapping[str, Literal["boosted-trees", "mlp"]]] = {"trees": "boosted-trees", "mlp": "mlp"}
_PAIR: Final = re.compile(r"([a-z_]+)=([^;]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularRow:
    """One measured cell: what was trained by what on which device, and how long preparing and training took.

    `engine`: with the count of its workers where there are several, since they cost more than one. `table`: the rows
    that were learned from, whatever the engine. `predicted_s`: by the physics alone, before any correction.
    """

    id: str
    configuration: str
    engine: str
    device: str
    method: Literal["boosted-trees", "mlp"]
    table: str
    passes: float
    seconds: float
    predicted_s: float
    busy_cores: float | None = None


def engine_key(engine: str, workers: int) -> str:
    """How rows of an engine are called: its workers behind it where there are several.

    >>> engine_key("pytorch", 2), engine_key("xgboost", 1)
    ('pytorch x2', 'xgboost')
    """
    return f"{engine} x{workers}" if workers > 1 else engine


def read_tabular_rows(path: Path) -> Iterator[TabularRow | SkippedRow]:
    """Rows in file order; one that cannot be used comes with its reason and line. Other metrics are passed over.

    Raises InputError where the file cannot be read, or lacks a column.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is too large for a table of benches", hint=f"at most {MOST_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        from tonnage.workload.file.text import looked_for

        raise InputError(f"no such file: {path}", hint=looked_for(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", hint="a CSV that `tonnage bench FILE --rows` wrote"
        ) from error
    table = csv.DictReader(text.splitlines())
    missing = [name for name in NEEDED if name not in (table.fieldnames or ())]
    if missing:
        known = ", ".join(NEEDED)
        raise InputError(f"{path}: no column '{missing[0]}'", hint=f"rows of `tonnage bench` have {known}")
    unknown = [name for name in table.fieldnames or () if name not in TRAINING_COLUMNS]
    if unknown:
        raise InputError(
            f"{path}: '{unknown[0]}' is not a column of measured rows", hint="docs/measured-rows.md lists them"
        )
    seen: set[str] = set()
    for record in table:
        name = record["id"] or ""
        if name in seen:
            yield SkippedRow(row_id=name, metric=record["metric"] or "", reason="duplicate id", line=table.line_num)
            continue
        seen.add(name)
        if record["metric"] == TIME_METRIC:
            yield _row(record, table.line_num)


def _row(record: Mapping[str, Any], line: int) -> TabularRow | SkippedRow:
    said = {key: value.strip() for key, value in _PAIR.findall(record["note"] or "")}
    try:
        if record.get("n_gpus"):
            raise ValueError("rows of GPUs are not fitted: there is no model of this card to compare them with")
        if record["method"] not in METHODS:
            raise ValueError(f"method '{record['method']}' is none of {', '.join(METHODS)}")
        seconds = float(record["value"])
        if not (isfinite(seconds) and seconds > 0):
            raise ValueError(f"{seconds} seconds")
        job = _job(METHODS[record["method"]], said)
        processor = CpuColumns(
            vcpus=np.array([float(_count(said, "threads"))]), memory_bytes=np.array([HOST_BYTES]),
            arm=np.array([said.get("arm") == "yes"]),
            threads_per_core=np.array([_number(said, "threads_per_core")]),
        )  # fmt: skip
        busy = said.get("busy_cores")
        return TabularRow(
            id=record["id"], configuration=record["config_id"],
            engine=engine_key(record["model"], _count(said, "workers")), device=record["gpu"], method=job.method,
            table=f"{said['data']} {job.rows}x{job.features}", passes=_number(said, "passes"), seconds=seconds,
            predicted_s=float(physics(job, processor).total_s[0]), busy_cores=float(busy) if busy else None,
        )  # fmt: skip
    except KeyError as error:
        reason = f"the note does not say {error.args[0]}"
    except ValueError as error:
        reason = str(error)
    return SkippedRow(row_id=record["id"] or "", metric=record["metric"] or "", reason=reason, line=line)


def _job(method: Literal["boosted-trees", "mlp"], said: Mapping[str, str]) -> TabularJob:
    rows, columns = _count(said, "rows"), _count(said, "columns")
    if method == "mlp":
        hidden = tuple(int(width) for width in said["hidden"].split("x"))
        return TabularJob(rows=rows, features=columns, method="mlp", epochs=_number(said, "passes"),
                          hidden_layers=hidden, global_batch=_count(said, "batch"))  # fmt: skip
    return TabularJob(rows=rows, features=columns, trees=_count(said, "trees"), depth=_count(said, "depth"),
                      bins=_count(said, "bins"))  # fmt: skip


def _count(said: Mapping[str, str], key: str) -> int:
    value = int(said[key])
    if value < 1:
        raise ValueError(f"{key}: found {value}")
    return value


def _number(said: Mapping[str, str], key: str) -> float:
    value = float(said[key])
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{key}: found {value}")
    return value


def physics(job: TabularJob, processors: CpuColumns) -> TabularEstimate:
    """What the formulas say of a job on processors, before any correction."""
    return (estimate_mlp_on_cpus if job.method == "mlp" else estimate_trees_on_cpus)(job, processors)
