"""Figures over time, in one SQLite file: fine for hours, coarser for days and weeks, then gone.

A round is written as one row: each series' value in a compressed block. Blocks are thinned when they grow old: ten
minutes become one point that holds the mean, the extremes and the newest value.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from tonnage.errors import DataError
from tonnage.files import make_private_folder
from tonnage.monitoring.figures import Figures, SeriesKey
from tonnage.values import dataclass

BLOCK_ROUNDS: Final = 60  # rounds that lie uncompressed, one row each, before they become a block a series
CHUNK_S: Final = 6 * 3600.0  # coarser blocks are made of so much at once, or they would hold a few points each
TIERS: Final = ((0.0, 0.0), (6 * 3600.0, 60.0), (2 * 86_400.0, 600.0))  # older than, one point in so many seconds
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS series (
  id INTEGER PRIMARY KEY, metric TEXT NOT NULL, labels TEXT NOT NULL, UNIQUE (metric, labels));
CREATE TABLE IF NOT EXISTS rounds (at REAL PRIMARY KEY, ids BLOB NOT NULL, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (
  series INTEGER NOT NULL, tier INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL, content BLOB NOT NULL,
  PRIMARY KEY (series, tier, first)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS blocks_by_age ON blocks (tier, last);
"""


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """Points of one series: seconds since the epoch and values, the oldest first."""

    key: SeriesKey
    times: np.ndarray
    values: np.ndarray


class MetricHistory:
    """The file of figures. Use as a context manager, or call `close`. DataError where it cannot be opened."""

    def __init__(self, path: Path, *, keep_s: float) -> None:
        self._keep_s, self._ids = keep_s, dict[SeriesKey, int]()
        make_private_folder(path.parent)
        try:
            self._base = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute("PRAGMA journal_size_limit=4000000")
            self._base.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table is made
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.executescript(_SCHEMA)
            for number, metric, labels in self._base.execute("SELECT id, metric, labels FROM series"):
                self._ids[_key(metric, labels)] = number
        except sqlite3.Error as error:
            raise DataError(f"{path}: {error}", hint="move the file away: a new one is made") from error

    def __enter__(self) -> MetricHistory:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    def add(self, at: float, figures: Figures) -> None:
        """One round, in one transaction. OSError where the disk is full or the file cannot be written."""
        try:
            with _Transaction(self._base):
                ids = np.array([self._id(key) for key in figures], dtype=np.int32)
                content = np.array(list(figures.values()), dtype=np.float64)
                self._base.execute(
                    "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)", (at, ids.tobytes(), content.tobytes())
                )
                if self._base.execute("SELECT count(*) FROM rounds").fetchone()[0] >= 2 * BLOCK_ROUNDS:
                    self._pack()
        except sqlite3.Error as error:
            self._ids.clear()  # ids of series whose rows were taken back
            self._ids |= {_key(metric, labels): number for number, metric, labels in self._named()}
            raise OSError(f"figures cannot be kept: {error}") from error

    def thin(self, now: float) -> None:
        """Make old blocks coarser, and forget what is older than is kept. Cheap where nothing is due."""
        try:
            with _Transaction(self._base):
                for tier in range(1, len(TIERS)):
                    older_than, step = TIERS[tier]
                    self._coarsen(tier, now - older_than, step)
                self._base.execute("DELETE FROM blocks WHERE last < ?", (now - self._keep_s,))
                self._base.execute("DELETE FROM rounds WHERE at < ?", (now - self._keep_s,))
            self._base.execute("PRAGMA incremental_vacuum(1000)")
        except sqlite3.Error as error:
            raise OSError(f"figures cannot be thinned: {error}") from error

    def names(self) -> list[SeriesKey]:
        """Every series there is."""
        return [_key(metric, labels) for _, metric, labels in self._named()]

    def points(self, keys: Iterable[SeriesKey], *, since: float, until: float) -> Iterator[SeriesPoints]:
        """The points of some series in a span of time. Of thinned parts a point is the mean of its minutes."""
        wanted = {self._ids[key]: key for key in keys if key in self._ids}
        loose = self._loose(wanted, since, until)
        for number, key in wanted.items():
            rows = self._base.execute(
                "SELECT content FROM blocks WHERE series = ? AND last >= ? AND first <= ?", (number, since, until)
            )
            parts = [_unpacked(content) for (content,) in rows]
            found = np.concatenate([*parts, loose.get(number, np.empty((2, 0)))], axis=1)
            found = found[:, np.argsort(found[0], kind="stable")]
            inside = (found[0] >= since) & (found[0] <= until)
            if inside.any():
                yield SeriesPoints(key, found[0, inside], found[1, inside])

    def rounds(self, keys: Iterable[SeriesKey], *, since: float, until: float) -> Iterator[tuple[float, Figures]]:
        """The same as rounds, the oldest first: what a watch would have seen."""
        by_time: defaultdict[float, dict[SeriesKey, float]] = defaultdict(dict)
        for one in self.points(keys, since=since, until=until):
            for at, value in zip(one.times.tolist(), one.values.tolist(), strict=True):
                by_time[at][one.key] = value
        yield from sorted(by_time.items(), key=lambda pair: pair[0])

    def _id(self, key: SeriesKey) -> int:
        if key not in self._ids:
            labels = json.dumps(dict(key.labels), sort_keys=True)
            row = self._base.execute(
                "INSERT INTO series (metric, labels) VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET metric = excluded.metric RETURNING id",
                (key.metric, labels),
            )
            self._ids[key] = row.fetchone()[0]
        return self._ids[key]

    def _named(self) -> Iterator[tuple[int, str, str]]:
        yield from self._base.execute("SELECT id, metric, labels FROM series ORDER BY metric, labels")

    def _loose(self, wanted: Mapping[int, Any], since: float, until: float) -> dict[int, np.ndarray]:
        found: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        rows = self._base.execute("SELECT at, ids, content FROM rounds WHERE at BETWEEN ? AND ?", (since, until))
        for at, ids, content in rows:
            for number, value in zip(_int32(ids).tolist(), _float64(content).tolist(), strict=True):
                if number in wanted:
                    found[number].append((at, value))
        return {number: np.array(pairs).T for number, pairs in found.items()}

    def _pack(self) -> None:
        """The older half of the loose rounds becomes one block a series."""
        rows = self._base.execute("SELECT at, ids, content FROM rounds ORDER BY at LIMIT ?", (BLOCK_ROUNDS,)).fetchall()
        found: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for at, ids, content in rows:
            for number, value in zip(_int32(ids).tolist(), _float64(content).tolist(), strict=True):
                found[number].append((at, value))
        for number, pairs in found.items():
            self._write(number, 0, np.array(pairs).T)
        self._base.execute("DELETE FROM rounds WHERE at <= ?", (rows[-1][0],))

    def _write(self, number: int, tier: int, points: np.ndarray) -> None:
        row = (number, tier, float(points[0, 0]), float(points[0, -1]), _packed(points))
        self._base.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", row)

    def _coarsen(self, tier: int, before: float, step: float) -> None:
        """Blocks of the finer tier that end before an instant become points of `step` seconds, a block a series."""
        oldest = self._base.execute("SELECT min(first) FROM blocks WHERE tier = ?", (tier - 1,)).fetchone()[0]
        if oldest is None or oldest > before - CHUNK_S:
            return
        due = self._base.execute(
            "SELECT series, first, content FROM blocks WHERE tier = ? AND last < ? ORDER BY series, first",
            (tier - 1, before),
        ).fetchall()
        grouped: defaultdict[int, list[np.ndarray]] = defaultdict(list)
        for number, _, content in due:
            grouped[number].append(_unpacked(content))
        for number, parts in grouped.items():
            self._write(number, tier, _coarser(np.concatenate(parts, axis=1), step))
        self._base.execute("DELETE FROM blocks WHERE tier = ? AND last < ?", (tier - 1, before))


class _Transaction:
    """BEGIN IMMEDIATE, and COMMIT or ROLLBACK."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def __enter__(self) -> None:
        self._base.execute("BEGIN IMMEDIATE")

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if kind is None:
            self._base.execute("COMMIT")
        elif self._base.in_transaction:
            self._base.execute("ROLLBACK")


def _coarser(points: np.ndarray, step: float) -> np.ndarray:
    """One point for each `step` seconds that has any: the mean, at the time of the newest.

    >>> _coarser(np.array([[0.0, 10.0, 60.0], [1.0, 3.0, 5.0]]), 60.0).tolist()
    [[10.0, 60.0], [2.0, 5.0]]
    """
    bins = np.floor(points[0] / step).astype(np.int64)
    _, first, counts = np.unique(bins, return_index=True, return_counts=True)
    means = np.add.reduceat(points[1], first) / counts
    return np.array([points[0][first + counts - 1], means])


def _packed(points: np.ndarray) -> bytes:
    """Times to the millisecond as differences, values as float32 with the bits of each byte side by side."""
    times = np.diff(np.round(points[0] * 1000.0).astype(np.int64), prepend=0)
    values = points[1].astype(np.float64).view(np.uint8).reshape(-1, 8).T
    return zlib.compress(np.array([points.shape[1]], dtype=np.int32).tobytes() + times.tobytes() + values.tobytes(), 6)


def _unpacked(content: bytes) -> np.ndarray:
    raw = zlib.decompress(content)
    count = int(np.frombuffer(raw[:4], dtype=np.int32)[0])
    times = np.cumsum(np.frombuffer(raw[4 : 4 + 8 * count], dtype=np.int64)) / 1000.0
    values = np.frombuffer(raw[4 + 8 * count :], dtype=np.uint8).reshape(8, -1).T.copy().view(np.float64).ravel()
    return np.array([times, values])


def _int32(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.int32)


def _float64(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.float64)


def _key(metric: str, labels: str) -> SeriesKey:
    return SeriesKey(metric, tuple(sorted(json.loads(labels).items())))
