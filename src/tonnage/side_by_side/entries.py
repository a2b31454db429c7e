"""The keys of a bench file: pydantic models; every key with its meaning."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Name
from tonnage.side_by_side.spec import EngineKind, MetricName, Packaged, ScalingKind, SearchSampler, Sharding, Task
from tonnage.workload.file.fields import (
    Amount,
    Count,
    CountOrZero,
    Duration,
    Positive,
    PositiveOrZero,
    Spelled,
    StrictModel,
    Usd,
    Word,
    as_names,
)
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.sweep_fields import Parameter

Fraction = Annotated[float, Field(ge=0.01, le=0.5), Spelled("number, 0.01 to 0.5")]
Sparsity = Annotated[float, Field(ge=0, lt=1), Spelled("number, 0 to below 1")]
Depth = Annotated[int, Field(ge=1, le=16), Spelled("whole number, 1 to 16")]
Bins = Annotated[int, Field(ge=2, le=256), Spelled("whole number, 2 to 256")]
Classes = Annotated[int, Field(ge=2, le=1000), Spelled("whole number, 2 to 1000")]


def _as_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _as_widths(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else value


def _as_devices(value: Any) -> Any:
    return tuple(str(one) for one in value) if isinstance(value, list) else as_names(value)


Widths = Annotated[tuple[Count, ...], BeforeValidator(_as_widths), Spelled("list of widths, such as [128, 64]")]
Devices = Annotated[tuple[Word, ...], BeforeValidator(_as_devices), Spelled("list of devices, such as [0, 1]")]
Columns = Annotated[tuple[Word, ...], BeforeValidator(as_names), Spelled("column, or list of columns")]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_as_list), Spelled("list of whole numbers, such as [1, 2, 4]")]
Kinds = Annotated[tuple[ScalingKind, ...], BeforeValidator(as_names), Spelled("strong, weak, or a list of both")]
Space = Annotated[dict[Word, Parameter], Spelled("key: list of values, or mapping with low and high")]
Native = Annotated[dict[str, Any], Spelled("mapping, passed to the engine")]


class GenerateEntry(StrictModel):
    """The shape of a table that is drawn."""

    rows: Amount = entry("Rows of the whole table, before it is split.")
    columns: Count = entry("Columns beside the target.")
    informative: Count | None = entry("Columns that the target depends on.", default=None, shown="half of them")
    sparsity: Sparsity = entry("Share of cells that are zero.", default=0.0)
    noise: PositiveOrZero = entry(
        "Standard deviation of what is added to the score, in that of the score.", default=0.1
    )
    classes: Classes | None = entry("Classes of `task: multiclass`.", default=None, shown="4")
    seed: CountOrZero = entry("Fixes the table.", default=0)


class SqlEntry(StrictModel):
    """A query in place of a file."""

    query: Word = entry("The statement; DuckDB's over files, such as SELECT * FROM 'rows.parquet', or the database's.")
    order_by: Columns = entry("Columns that together are a key: they fix the order of the rows, and are no features.")
    database: Word | None = entry(
        "A SQLAlchemy URL; its secrets, or all of it, as ${NAME} of the environment.", default=None,
        shown="none: files, paths start from the bench file",
    )  # fmt: skip


class DataEntry(StrictModel):
    """One data set; exactly one of `generate`, `packaged`, `file`, `sql`."""

    name: Name = entry("How the data set is called in the report.")
    task: Task | None = entry(
        "binary, multiclass or regression.", default=None, shown="binary; of packaged sets their own"
    )
    generate: GenerateEntry | None = entry("Draw a table of this shape.", default=None)
    packaged: Packaged | None = entry("A set that scikit-learn carries.", default=None)
    file: Word | None = entry("A CSV or Parquet file; the path starts from the bench file.", default=None)
    sql: SqlEntry | None = entry("The rows of a query.", default=None)
    label: Word | None = entry("The target column of the file or the query.", default=None)
    metric: MetricName | None = entry("auc, accuracy or rmse.", default=None, shown="by task")
    target: Positive | None = entry("The quality that time and dollars are counted to.", default=None)


class SplitEntry(StrictModel):
    """How the rows are divided."""

    validation: Fraction = entry("Share of the rows on which the target is looked for.", default=0.15)
    test: Fraction = entry("Share of the rows on which the quality is stated.", default=0.15)


class BenchPriceEntry(StrictModel):
    """What the machine costs."""

    usd_per_hour: Usd | None = entry("Dollars an hour.", default=None)
    instance: Word | None = entry("An instance type of the catalog, at its price on demand.", default=None)
    region: Word | None = entry("Where it is bought.", default=None, shown="where it is cheapest")


class ScalingEntry(StrictModel):
    """A study of scaling: the engine once for each number of workers."""

    workers: Counts = entry("Numbers of workers, from 1 upwards, such as [1, 2, 4].")
    kinds: Kinds = entry(
        "`strong`: all rows whatever the workers; `weak`: as many rows and as large a batch for each worker.",
        default=("strong", "weak"), shown="both",
    )  # fmt: skip
    threads_per_worker: Count = entry("Threads of each worker.", default=1)


class EngineEntry(StrictModel):
    """One engine."""

    engine: EngineKind = entry("The engine.")
    name: Name | None = entry("How it is called in the report.", default=None, shown="the engine's own name")
    threads: Count | None = entry("Threads of all workers together.", default=None, shown="those of the bench")
    workers: Count = entry(
        "Processes that share the rows: pytorch (DDP), pytorch-fsdp, engines in Spark or Ray.", default=1
    )
    devices: Devices = entry("GPUs, one a worker; each worker sees its own alone.", default=())
    scaling: ScalingEntry | None = entry("Over how many workers it is measured.", default=None, shown="not at all")
    memory_gib: Positive = entry("Heap of each Java process (H2O, Spark), GiB.", default=2.0)
    master: Word | None = entry(
        "Of engines in Spark or Ray: the address of a cluster, spark://HOST:PORT, ray://HOST:PORT, HOST:PORT or auto.",
        default=None,
        shown="one on this host",
    )
    rounds: Count | None = entry("Trees.", default=None, shown="100")
    depth: Depth | None = entry("Levels of a tree.", default=None, shown="6")
    bins: Bins | None = entry("Histogram bins of a column.", default=None, shown="256")
    learning_rate: Positive | None = entry("Learning rate.", default=None, shown="0.1; 0.001 of pytorch")
    epochs: Count | None = entry("Passes over the rows (pytorch).", default=None, shown="10")
    hidden: Widths | None = entry("Hidden layers (pytorch).", default=None, shown="[128, 64]")
    batch: Count | None = entry("Rows of a step, all workers together (pytorch).", default=None, shown="1024")
    models: Count | None = entry("Models that AutoML trains; with `bench.search` its budget.", default=None, shown="10")
    sharding: Sharding | None = entry(
        "What pytorch-fsdp frees after a layer's forward pass: its gathered weights (zero3), or nothing (zero2).",
        default=None, shown="zero3",
    )  # fmt: skip
    native: Native = entry("Parameters under the engine's own names.", default=dict)
    search: Space | None = entry(
        "What `bench.search` may change here, in place of the usual space; {}: nothing.", default=None,
        shown="the engine's published space",
    )  # fmt: skip


class SearchEntry(StrictModel):
    """A search for hyper-parameters before the engines are compared; exactly one of `trials`, `time`, `cost_usd`."""

    trials: Count | None = entry("Trials of each engine on each data set.", default=None)
    time: Duration | None = entry("Time of preparing and training, of all trials of an engine.", default=None)
    cost_usd: Usd | None = entry("Dollars of that time, at the bench's `price`.", default=None)
    sampler: SearchSampler = entry("By what earlier trials showed (tpe), or at random.", default="tpe")
    seed: CountOrZero = entry("Seed of the choice.", default=0)
    validation: Fraction = entry("Share of the training rows on which trials are judged.", default=0.2)


class BenchEntry(StrictModel):
    """The section `bench:`."""

    name: Name = entry("The folder of its results.")
    data: Annotated[tuple[DataEntry, ...], BeforeValidator(_as_list), Spelled("list")] = entry("The data sets.")
    engines: Annotated[tuple[EngineEntry, ...], BeforeValidator(_as_list), Spelled("list")] = entry("The engines.")
    repeats: Count = entry("How often each engine meets each data set.", default=3)
    seed: CountOrZero = entry("Fixes the split; a repeat adds its number for the engine.", default=0)
    threads: Count = entry("Threads of an engine, pinned to as many cores.", default=1)
    split: SplitEntry = entry("How the rows are divided.", default=SplitEntry)
    timeout: Duration = entry("After this a cell has failed.", default=600.0, shown="10m")
    price: BenchPriceEntry | None = entry("What the machine costs.", default=None)
    search: SearchEntry | None = entry("A search for hyper-parameters.", default=None, shown="settings as given")


class BenchFileEntry(StrictModel):
    """The file."""

    bench: BenchEntry = entry("The comparison.")
