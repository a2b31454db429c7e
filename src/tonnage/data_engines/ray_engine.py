"""Ray Data: rows in blocks on the machines of a Ray cluster, each step by DuckDB's SQL on the blocks.

What a step does to a row is the same statement as on one machine, so the result is the same. Steps that need rows
together (windows) shuffle them by a hash of their group first; the other table of a join goes whole to each worker.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tonnage.data_engines.delta import write_version
from tonnage.data_engines.duckdb_engine import DuckDbEngine, reading
from tonnage.data_engines.lines import files_of
from tonnage.data_engines.tokens import tokeniser
from tonnage.errors import DataError, InputError, MissingExtra, TonnageError
from tonnage.preparing import sql
from tonnage.preparing.spec import ColumnType, Encode, Join, TableSource, TableTarget, TokenColumns, Window
from tonnage.preparing.sql import DUCKDB

OBJECT_STORE_BYTES: Final = 512 * 2**20  # of a Ray that this process starts; what is more goes to the disk
MOST_BESIDE_BYTES: Final = 2**30  # of a table that goes whole to each worker
PARTS_PER_CPU: Final = 2  # of a shuffle
PART: Final = "tonnage part"  # the column by which rows are brought together
FOUND: Final = "found"  # a table of what blocks gave
PASSED_ON: Final = ("PYTHONPATH",)


class RayDataEngine:
    """The preparation in Ray Data. A local database has each view with no rows: it tells the types of columns."""

    def __init__(self, folder: Path, *, address: str | None = None) -> None:
        """On the cluster at `address` or RAY_ADDRESS, whose workers see the same paths; else a Ray of this machine,
        which ends with the engine. MissingExtra without Ray; TonnageError where it does not start."""
        self._shapes = DuckDbEngine(folder, threads=1)
        try:
            self._ray: Any = importlib.import_module("ray")
            self._data: Any = importlib.import_module("ray.data")
        except ImportError as error:
            raise MissingExtra("preparing rows with Ray Data", "ray") from error
        self._started = not self._ray.is_initialized()
        if self._started:
            self._join_or_start(address or os.environ.get("RAY_ADDRESS"))
        context = self._data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self._parts = max(1, PARTS_PER_CPU * cpus)
        self._views: dict[str, Any] = {}

    def _join_or_start(self, address: str | None) -> None:
        passed = {name: value for name, value in os.environ.items() if name in PASSED_ON}
        common = {"log_to_driver": False, "logging_level": "warning", "runtime_env": {"env_vars": passed}}
        alone = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        try:
            self._ray.init(**common, **({"address": address} if address else alone))
        except Exception as error:  # Ray's own, and those of the network
            raise TonnageError(
                f"Ray does not start on {address or 'this machine'}: {error}",
                hint="`ray status` on its head; --master is auto on one of its machines, ray://HEAD:10001 elsewhere",
            ) from error

    # sources

    def open(self, view: str, source: TableSource) -> Mapping[str, ColumnType | None]:
        """The source in blocks, one for each file or partition. DataError where it cannot be read."""
        kinds = self._shapes.open(view, source)
        groups = [] if source.format == "delta" else [[one] for one in files_of(source)]
        queries = reading(source, groups, tuple(kinds))
        schema = self._shapes.shape(view)
        self._shapes.empty(view, schema)
        rows = self._data.from_items([{"query": one} for one in queries], override_num_blocks=max(1, len(queries)))
        self._keep(view, rows.map_batches(partial(read_rows, schema=schema), batch_size=1, batch_format="pyarrow"),
                   f"source '{source.name}': {source.location}")  # fmt: skip
        return kinds

    def _keep(self, view: str, rows: Any, what: str) -> None:
        """Computed once, since several questions follow. DataError where that fails."""
        try:
            self._views[view] = rows.materialize()
        except Exception as error:  # Ray passes on what workers raise
            raise DataError(f"{what} cannot be read: {cause_of(error)}") from error

    def typed(self, view: str, over: str, types: Mapping[str, ColumnType]) -> None:
        """Each column as its type."""
        self._each(view, over, sql.typed_sql(DUCKDB, over, types))
        self._keep(view, self._views[view], view)

    # questions

    def count(self, view: str) -> int:
        """Rows of a view."""
        return int(self._views[view].count())

    def untyped(self, view: str, column: str, kind: ColumnType) -> str | None:
        """The least text of a column that is not of its type."""
        query = sql.untyped_sql(DUCKDB, view, column, kind)
        if query is None:
            return None
        found = [next(iter(row.values())) for row in self._asked(view, query)]
        return min((str(one) for one in found if one is not None), default=None)

    def keyless(self, view: str, key: Sequence[str]) -> int:
        """How many rows lack a part of their key."""
        return sum(int(next(iter(row.values()))) for row in self._asked(view, sql.keyless_sql(DUCKDB, view, key)))

    def repeated(self, view: str, key: Sequence[str]) -> tuple[Any, ...] | None:
        """The first key that more than one row has, and how many: rows with one key are in one block then."""
        query = sql.repeated_sql(DUCKDB, view, key)
        rows = self._together(view, key).map_batches(
            partial(ask_rows, over=view, query=query), batch_size=None, batch_format="pyarrow"
        )
        found = [tuple(row.values()) for row in rows.take_all()]
        return min(found, default=None)

    def categories(self, view: str, step: Encode) -> list[str]:
        """The categories there are, one more than may be at most."""
        rows = self._asked(view, sql.categories_sql(DUCKDB, view, step))
        return sorted({str(next(iter(row.values()))) for row in rows})[: step.most + 1]

    def _asked(self, view: str, query: str) -> list[dict[str, Any]]:
        """What a query gives for each block."""
        rows = self._views[view].map_batches(
            partial(ask_rows, over=view, query=query), batch_size=None, batch_format="pyarrow"
        )
        try:
            found: list[dict[str, Any]] = rows.take_all()
            return found
        except Exception as error:  # as above
            raise DataError(f"rows cannot be read: {cause_of(error)}") from error

    # steps

    def join(
        self, view: str, over: str, columns: Sequence[str], step: Join, other: str, key: Sequence[str],
        kept: Sequence[str],
    ) -> None:  # fmt: skip
        """Columns of the other table, which goes whole to each worker. InputError where it is too large for that."""
        beside = self._table(other, [*key, *kept])
        if beside.nbytes > MOST_BESIDE_BYTES:
            said = f"the source '{step.source}' has {beside.nbytes / 2**30:.1f} GiB of columns that are joined"
            hint = "--engine spark, or fewer columns under `keep`"
            raise InputError(f"{said}, {MOST_BESIDE_BYTES >> 30} at most: each of Ray's workers holds them", hint=hint)
        query = sql.join_sql(DUCKDB, over, columns, step, other, key, kept)
        self._each(view, over, query, beside={other: self._ray.put(beside)})

    def window(self, view: str, over: str, columns: Sequence[str], step: Window, key: Sequence[str]) -> None:
        """A figure over the rows before, of groups whose rows have been brought together."""
        query = sql.window_sql(DUCKDB, over, columns, step, key)
        self._each(view, over, query, rows=self._together(over, step.by))
        self._keep(view, self._views[view], f"the window over '{step.column}'")

    def encode(self, view: str, over: str, columns: Sequence[str], step: Encode, categories: Sequence[str]) -> None:
        """The categories as numbers; for frequencies the blocks are counted first."""
        if step.how != "frequency":
            self._each(view, over, sql.encode_sql(DUCKDB, over, columns, step, categories))
            return
        counts = self._counts(over, step)
        query = sql.shares_sql(DUCKDB, over, columns, step, FOUND, total=self.count(over))
        self._each(view, over, query, beside={FOUND: self._ray.put(counts)})

    def _counts(self, view: str, step: Encode) -> Any:
        """How often each text is there, over all blocks."""
        arrow: Any = importlib.import_module("pyarrow")
        rows = self._asked(view, sql.counts_sql(DUCKDB, view, step))
        total: dict[str, int] = {}
        for text, number in (row.values() for row in rows):
            total[text] = total.get(text, 0) + int(number)
        return arrow.table({"category": arrow.array(list(total), arrow.string()),
                            "number": arrow.array(list(total.values()), arrow.int64())})  # fmt: skip

    def select(self, view: str, over: str, columns: Sequence[str]) -> None:
        """These columns alone."""
        self._each(view, over, sql.columns_sql(DUCKDB, over, columns))

    def tokenise(self, view: str, over: str, step: TokenColumns) -> None:
        """Token numbers beside the rows, block by block on the workers."""
        arrow: Any = importlib.import_module("pyarrow")
        schema = self._shapes.shape(over).append(arrow.field(step.name, arrow.list_(arrow.int32())))
        self._shapes.empty(view, schema)
        self._views[view] = self._views[over].map_batches(
            partial(token_rows, step=step, schema=schema), batch_size=None, batch_format="pyarrow"
        )
        self._keep(view, self._views[view], f"'{step.column}' as tokens")

    def _each(
        self, view: str, over: str, query: str, *, rows: Any = None, beside: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        """A view by a query on each block of another, beside whole tables by their names."""
        for name, table in (beside or {}).items():
            if name not in self._views:
                self._shapes.empty(name, self._ray.get(table).schema)
        self._shapes.define(view, query)
        schema = self._shapes.shape(view)
        self._shapes.empty(view, schema)
        step = partial(step_rows, over=over, query=query, schema=schema, beside=dict(beside or {}))
        source = self._views[over] if rows is None else rows
        self._views[view] = source.map_batches(step, batch_size=None, batch_format="pyarrow")

    def _together(self, view: str, by: Sequence[str]) -> Any:
        """The rows in blocks such that those with the same values are in one."""
        self._keep(view, self._views[view], view)
        if self._views[view].num_blocks() == 1:
            return self._views[view]
        rows = self._views[view].map_batches(
            partial(numbered_rows, over=view, by=tuple(by), parts=self._parts), batch_size=None, batch_format="pyarrow"
        )
        return rows.repartition(self._parts, keys=[PART])

    def _table(self, view: str, columns: Sequence[str]) -> Any:
        """Columns of all rows, here."""
        arrow: Any = importlib.import_module("pyarrow")
        schema = self._shapes.shape(view)
        blocks = [one.cast(schema) for one in self._ray.get(self._views[view].to_arrow_refs()) if one.num_rows]
        whole = arrow.concat_tables(blocks) if blocks else schema.empty_table()
        return whole.select(list(dict.fromkeys(columns)))

    # result

    def write(self, view: str, key: tuple[str, ...], target: TableTarget) -> int | None:
        """The rows in order of their key: a folder of parts; of a Delta table a new version, written from here."""
        place = Path(target.location)
        place.parent.mkdir(parents=True, exist_ok=True)
        between = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.parts")
        between.mkdir()
        schema = self._shapes.shape(view)
        kept = "csv" if target.format == "csv" else "parquet"
        try:
            self._write_parts(view, key, between, kept, schema)
            if target.format == "delta":
                dataset: Any = importlib.import_module("pyarrow.dataset")
                parts = dataset.dataset(str(between), format="parquet")
                return write_version(target.location, iter(parts.to_batches()), schema, target.partition_by)
            if place.is_dir():
                shutil.rmtree(place)
            os.replace(between, place)
            return None
        finally:
            shutil.rmtree(between, ignore_errors=True)

    def _write_parts(self, view: str, key: tuple[str, ...], folder: Path, kind: str, schema: Any) -> None:
        writer = self._ray.remote(write_part)
        try:
            self._views[view] = self._views[view].sort(list(key)).materialize()
            blocks = self._views[view].to_arrow_refs()
            written = [writer.remote(one, str(folder / f"part-{number:05d}.{kind}"), kind, schema)
                       for number, one in enumerate(blocks)]  # fmt: skip
            if not sum(self._ray.get(written)):
                write_part(schema.empty_table(), str(folder / f"part-00000.{kind}"), kind, schema, empty=True)
        except Exception as error:  # as above
            raise DataError(f"{folder.parent} cannot be written: {cause_of(error)}") from error

    def close(self) -> None:
        """Leave the cluster; a Ray that was started here ends."""
        self._shapes.close()
        if self._started:
            self._ray.shutdown()


# on the workers


def read_rows(batch: Any, *, schema: Any) -> Iterator[Any]:
    """What the queries in a batch read."""
    for query in batch.column("query").to_pylist():
        yield _answer(query, {}).cast(schema)


def ask_rows(batch: Any, *, over: str, query: str) -> Any:
    """What a query gives for a block."""
    return _answer(query, {over: batch})


def step_rows(batch: Any, *, over: str, query: str, schema: Any, beside: Mapping[str, Any]) -> Any:
    """A block after a step. `beside`: whole tables in Ray's store."""
    ray: Any = importlib.import_module("ray")
    tables = {name: ray.get(table) for name, table in beside.items()}
    return _answer(query, {over: batch, **tables}).cast(schema)


def numbered_rows(batch: Any, *, over: str, by: Sequence[str], parts: int) -> Any:
    """A block with the part of each row: the same for the same values, on every machine."""
    names = DUCKDB.names(by)
    query = f"SELECT *, CAST(hash({names}) % {parts} AS BIGINT) AS {DUCKDB.name(PART)} FROM {DUCKDB.name(over)}"
    return _answer(query, {over: batch})


def token_rows(batch: Any, *, step: TokenColumns, schema: Any) -> Any:
    """A block with token numbers."""
    arrow: Any = importlib.import_module("pyarrow")
    numbers = tokeniser(step.tokenizer, step.most)(batch.column(step.column).to_pylist())
    return batch.append_column(schema.field(step.name), arrow.array(numbers, arrow.list_(arrow.int32()))).cast(schema)


def write_part(table: Any, path: str, kind: str, schema: Any, *, empty: bool = False) -> int:
    """A block as a file, where it has rows; how many."""
    if table.num_rows or empty:
        how = "FORMAT parquet" if kind == "parquet" else "FORMAT csv, HEADER"
        _answer(
            f"COPY (SELECT * FROM {DUCKDB.name(FOUND)}) TO {DUCKDB.text(path)} ({how})", {FOUND: table.cast(schema)}
        )
    return int(table.num_rows)


def _answer(query: str, tables: Mapping[str, Any]) -> Any:
    """A query over Arrow tables, on one thread: Ray has as many workers as there are cores."""
    duckdb: Any = importlib.import_module("duckdb")
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(query).to_arrow_table()


def cause_of(error: Exception) -> str:
    """What a worker raised: the last line of its traceback that names an error."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or [type(error).__name__])[-1]
