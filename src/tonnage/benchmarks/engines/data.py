"""The rows of a bench: drawn, packaged or read, split once, written as arrays that every worker reads."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.benchmarks.engines.sql_rows import read_query
from tonnage.errors import InputError, MissingExtra
from tonnage.files import write_whole
from tonnage.reports.wording import render_gib
from tonnage.side_by_side.spec import BenchData, BenchSpec, Generated, TableFacts, Task
from tonnage.units import to_gib
from tonnage.values import dataclass
from tonnage.workload.file.text import looked_for

PARTS: Final = ("train", "validation", "test")
FEWEST_ROWS: Final = 20
COUNTED_ROWS: Final = 20_000
COPIES: Final = 6.0  # of the table, resident in the greediest engine's worker: arrays, own form, histograms, curves
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """A data set on the disk. `digests`: SHA-256 of each part, the same for every engine."""

    folder: Path
    rows: Mapping[str, int]
    columns: int
    digests: Mapping[str, str]
    facts: TableFacts


def draw(shape: Generated, task: Task) -> tuple[Floats, Floats]:
    """A table of this shape: normal columns, a score of the informative ones with products and bends, noise on top.

    >>> features, target = draw(Generated(rows=100, columns=4, informative=2, sparsity=0.5, noise=0.1, classes=2,
    ...                                   seed=0), "binary")
    >>> features.shape, sorted(set(target.tolist()))
    ((100, 4), [0.0, 1.0])
    """
    random = np.random.default_rng(shape.seed)
    features = random.standard_normal((shape.rows, shape.columns), dtype=np.float32)
    if shape.sparsity > 0:
        features[random.random(features.shape, dtype=np.float32) < shape.sparsity] = 0.0
    outputs = shape.classes if task == "multiclass" else 1
    scores = np.stack([_score(features, shape, random) for _ in range(outputs)], axis=1)
    scores += shape.noise * random.standard_normal(scores.shape, dtype=np.float32)
    if task == "regression":
        return features, scores[:, 0].astype(np.float32)
    named = scores.argmax(axis=1) if task == "multiclass" else scores[:, 0] > np.median(scores[:, 0])
    return features, named.astype(np.float32)


def _score(features: Floats, shape: Generated, random: np.random.Generator) -> Floats:
    """Linear terms, products of neighbours and sines, each a third of the variance, standard deviation one."""
    used = features[:, : shape.informative]
    weights = [random.standard_normal(shape.informative).astype(np.float32) for _ in range(3)]
    terms = (used @ weights[0], (used * np.roll(used, 1, axis=1)) @ weights[1], np.sin(2.0 * used) @ weights[2])
    whole = sum((term / (term.std() + 1e-9) for term in terms), start=np.zeros(len(features), dtype=np.float32))
    return np.asarray(whole / (whole.std() + 1e-9), dtype=np.float32)


def prepare_data(spec: BenchSpec, data: BenchData, folder: Path, *, memory_bytes: float) -> SplitRows:
    """The data set on the disk, made where it is not there yet. InputError for rows that cannot be used or do not fit.

    `memory_bytes` is what is free: a generated table that would not fit is refused with the number of rows that fits.
    """
    stated = folder / "data.json"
    known = json.loads(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
    if "facts" in known:
        return SplitRows(folder=folder, rows=known["rows"], columns=known["columns"], digests=known["digests"],
                         facts=TableFacts(**known["facts"]))  # fmt: skip
    if data.generated is not None:
        refuse_too_large(data.name, data.generated, memory_bytes)
    features, target = _load(data)
    if data.generated is None:
        _refuse_what_does_not_fit(data.name, len(target), int(features.shape[1]), memory_bytes)
    _check(data, features, target)
    folder.mkdir(parents=True, exist_ok=True)
    _refuse_without_room(data.name, folder, features.nbytes + target.nbytes)
    parts = _split(spec, len(target))
    digests = {part: _save(folder, part, features[rows], target[rows]) for part, rows in parts.items()}
    prepared = SplitRows(folder=folder, rows={part: len(rows) for part, rows in parts.items()},
                        columns=int(features.shape[1]), digests=digests,
                        facts=_facts(data.task, features, target))  # fmt: skip
    stating = {"rows": prepared.rows, "columns": prepared.columns, "digests": digests, "facts": asdict(prepared.facts)}
    write_whole(stated, json.dumps(stating))
    return prepared


def prepare_search(split: SplitRows, fraction: float, seed: int) -> Path:
    """The folder that trials read: the training rows alone, divided again. No row of the bench's validation and test
    parts is in it, so that a search cannot have seen them."""
    folder = split.folder / "search"
    stated = folder / "search.json"
    if not stated.is_file():
        folder.mkdir(exist_ok=True)
        features, target = (np.load(split.folder / f"train_{name}.npy") for name in ("features", "target"))
        order = np.random.default_rng(seed).permutation(len(target))
        ends = len(target) - round(len(target) * fraction)
        for part, rows in (("train", order[:ends]), ("validation", order[ends:])):
            _save(folder, part, features[rows], target[rows])
        write_whole(stated, json.dumps({"train": ends, "validation": len(target) - ends}))
    return folder


def _facts(task: Task, features: Floats, target: Floats) -> TableFacts:
    """Of the whole table; values of a column are counted over its first rows."""
    first = np.sort(features[:COUNTED_ROWS], axis=0)
    values = 1 + np.count_nonzero(np.diff(first, axis=0), axis=0)
    classes = 0 if task == "regression" else len(np.unique(target))
    return TableFacts(classes=classes, values=round(float(np.minimum(values, 256).mean())))


def refuse_too_large(name: str, shape: Generated, memory_bytes: float) -> None:
    """InputError where an engine would hold more than is free: `COPIES` float32 tables."""
    _refuse_what_does_not_fit(name, shape.rows, shape.columns, memory_bytes)


def _refuse_what_does_not_fit(name: str, rows: int, columns: int, memory_bytes: float) -> None:
    row_bytes = 4.0 * columns * COPIES
    if rows * row_bytes > memory_bytes:
        fits = int(memory_bytes / row_bytes)
        raise InputError(
            f"data set '{name}' needs about {to_gib(rows * row_bytes):.1f} GiB in an engine, "
            f"{to_gib(memory_bytes):.1f} GiB are free",
            hint=f"rows: {fits} fits",
        )


def _refuse_without_room(name: str, folder: Path, needed_bytes: float) -> None:
    """InputError where the disk cannot take the table."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise InputError(
            f"data set '{name}' needs {render_gib(to_gib(needed_bytes))} in {folder}, "
            f"{render_gib(to_gib(free))} are free on its disk",
            hint="make room there, or set TONNAGE_HOME to a folder of another disk",
        )


def _split(spec: BenchSpec, rows: int) -> dict[str, NDArray[np.int64]]:
    order = np.random.default_rng(spec.seed).permutation(rows)
    held, tested = round(rows * spec.validation_fraction), round(rows * spec.test_fraction)
    ends = (rows - held - tested, rows - tested)
    return dict(zip(PARTS, np.split(order, ends), strict=True))


def _save(folder: Path, part: str, features: Floats, target: Floats) -> str:
    for name, values in (("features", features), ("target", target)):
        place = folder / f"{part}_{name}.npy"
        try:
            np.save(place, np.ascontiguousarray(values, dtype=np.float32))
        except OSError as error:
            if error.errno is None:  # numpy says how much it could write, not why
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place)) from error
            raise
    digest = hashlib.sha256()
    for name in ("features", "target"):
        with open(folder / f"{part}_{name}.npy", "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _load(data: BenchData) -> tuple[Floats, Floats]:
    if data.generated is not None:
        return draw(data.generated, data.task)
    if data.packaged is not None:
        try:
            from sklearn import datasets
        except ImportError as error:
            raise MissingExtra(f"the data set {data.packaged}", "tabular") from error
        features, target = getattr(datasets, f"load_{data.packaged}")(return_X_y=True)
        return np.asarray(features, dtype=np.float32), np.asarray(target, dtype=np.float32)
    if data.sql is not None:
        return _numbered(data, read_query(data.name, data.sql), f"the query of '{data.name}'")
    return _read(data)


def _read(data: BenchData) -> tuple[Floats, Floats]:
    """A CSV or Parquet file."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra(f"reading {data.file}", "frames") from error
    path = Path(str(data.file))
    try:
        frame = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"data set '{data.name}': no such file: {path}", hint=looked_for(path)) from None
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="a CSV with a header, or Parquet") from error
    return _numbered(data, frame, str(path))


def _numbered(data: BenchData, frame: Any, where: str) -> tuple[Floats, Floats]:
    """Columns of numbers as they are, of words as codes in order of the alphabet."""
    if data.label not in frame.columns:
        known = ", ".join(str(name) for name in frame.columns[:20])
        raise InputError(f"{where} has no column '{data.label}'", hint=f"its columns: {known}")
    target = _numbers(frame[data.label], data.task != "regression")
    rest = frame.drop(columns=[data.label])
    columns = [_numbers(rest[name], codes=False) for name in rest.columns]
    return np.stack(columns, axis=1).astype(np.float32), target.astype(np.float32)


def _numbers(column: Any, codes: bool) -> NDArray[np.float64]:
    from pandas.api.types import is_numeric_dtype

    if codes or not is_numeric_dtype(column):
        return np.asarray(column.astype("category").cat.codes, dtype=np.float64)
    return np.asarray(column, dtype=np.float64)


def _check(data: BenchData, features: Floats, target: Floats) -> None:
    if len(target) < FEWEST_ROWS:
        raise InputError(f"data set '{data.name}' has {len(target)} rows", hint=f"{FEWEST_ROWS} or more")
    if not (np.isfinite(features).all() and np.isfinite(target).all()):
        raise InputError(f"data set '{data.name}' has empty cells or infinite figures", hint="fill them or drop them")
    classes = len(np.unique(target))
    if data.task == "binary" and classes != 2:
        raise InputError(f"data set '{data.name}' has {classes} classes", hint="task: multiclass, or regression")
