"""What a bench file asks for, frozen: data sets, engines, how often, at what price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import ceil, log2
from types import MappingProxyType
from typing import Any, Final, Literal

from tonnage.trials.parameters import TrialParameter
from tonnage.values import dataclass
from tonnage.workload.file.sweep_fields import Direction
from tonnage.workload.jobs import TabularJob

Task = Literal["binary", "multiclass", "regression"]
MetricName = Literal["auc", "accuracy", "rmse"]
Packaged = Literal["breast_cancer", "digits", "diabetes", "wine", "iris"]
EngineKind = Literal[
    "scikit-learn", "xgboost", "lightgbm", "catboost", "pytorch", "pytorch-fsdp", "h2o-gbm", "h2o-xgboost",
    "h2o-automl", "sparkling-gbm", "sparkling-xgboost", "sparkling-automl", "spark-gbt", "spark-forest",
    "ray-xgboost", "ray-pytorch",
]  # fmt: skip
Sharding = Literal["zero2", "zero3"]
Family = Literal["trees", "mlp", "automl"]
ScalingKind = Literal["strong", "weak"]
Environment = Literal["own", "h2o", "sparkling", "ray"]
Cluster = Literal["Spark", "Ray"]
SearchSampler = Literal["tpe", "random"]

METRICS: Final[Mapping[Task, tuple[MetricName, ...]]] = MappingProxyType(
    {"binary": ("auc", "accuracy"), "multiclass": ("accuracy",), "regression": ("rmse",)}
)
PACKAGED_TASKS: Final[Mapping[Packaged, Task]] = MappingProxyType({
    "breast_cancer": "binary", "digits": "multiclass", "diabetes": "regression", "wine": "multiclass",
    "iris": "multiclass",
})  # fmt: skip
DISTRIBUTED: Final[tuple[EngineKind, ...]] = (
    "pytorch", "pytorch-fsdp", "sparkling-gbm", "sparkling-xgboost", "sparkling-automl", "spark-gbt", "spark-forest",
    "ray-xgboost", "ray-pytorch",
)  # fmt: skip
ON_PROCESSORS: Final[tuple[EngineKind, ...]] = ("scikit-learn", "h2o-gbm")


def trains_on_processors_alone(engine: EngineKind) -> bool:
    """Whether a bench gives the engine no devices: it has no code for GPUs, or runs in Spark or Ray.

    >>> trains_on_processors_alone("h2o-gbm"), trains_on_processors_alone("h2o-xgboost")
    (True, False)
    """
    return engine in ON_PROCESSORS or environment_of(engine) in ("sparkling", "ray")


def is_better(metric: MetricName, one: float, other: float) -> bool:
    """Whether `one` is at least as good as `other`: of an error the smaller figure is.

    >>> is_better("auc", 0.9, 0.8), is_better("rmse", 0.9, 0.8)
    (True, False)
    """
    return one <= other if metric == "rmse" else one >= other


def direction_of(metric: MetricName) -> Direction:
    """Which way of a metric is better."""
    return "minimize" if metric == "rmse" else "maximize"


def family_of(engine: EngineKind) -> Family:
    """The kind of model that an engine trains here; automl: what it finds."""
    if engine.endswith("automl"):
        return "automl"
    return "mlp" if engine.endswith("pytorch") or engine == "pytorch-fsdp" else "trees"


def environment_of(engine: EngineKind) -> Environment:
    """The environment that the engine's worker runs in: H2O and Sparkling Water exclude one another and need their own.

    Spark's own models run in that of Sparkling Water; Ray's has the versions of its cluster.

    >>> environment_of("sparkling-gbm"), environment_of("spark-gbt"), environment_of("ray-pytorch")
    ('sparkling', 'sparkling', 'ray')
    """
    if engine.startswith("spark"):
        return "sparkling"
    return "h2o" if engine.startswith("h2o") else "ray" if engine.startswith("ray") else "own"


def cluster_of(engine: EngineKind) -> Cluster | None:
    """What the engine's workers run in besides this machine; None: no cluster."""
    return {"sparkling": "Spark", "ray": "Ray"}.get(environment_of(engine))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A table drawn from a generator of this shape; `noise` is the standard deviation added to the score."""

    rows: int
    columns: int
    informative: int
    sparsity: float
    noise: float
    classes: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSource:
    """A query: of the `database` (a SQLAlchemy URL, secrets as ${NAME}), or of DuckDB over files of `folder` (None).

    `order_by`: columns that together are a key; they order the rows and are no features.
    """

    query: str
    order_by: tuple[str, ...]
    database: str | None
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchData:
    """One data set: from a generator, from scikit-learn's package, or from a file or a query with a target column."""

    name: str
    task: Task
    metric: MetricName
    target: float | None
    generated: Generated | None = None
    packaged: Packaged | None = None
    file: str | None = None
    label: str | None = None
    sql: SqlSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What a table says besides its size. `classes`: of the target (0: a number); `values`: different ones of a column,
    256 at most, the mean over the columns."""

    classes: int = 2
    values: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlace:
    """Where an engine belongs in a study of scaling over workers. `group`: its name; `kinds`: the curves it is a point
    of; `most`: the greatest number of workers, which shares all training rows in both curves."""

    group: str
    kinds: tuple[ScalingKind, ...]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine with its hyper-parameters and what it may use. `native` goes to the engine as it is."""

    name: str
    engine: EngineKind
    threads: int
    workers: int = 1
    devices: tuple[str, ...] = ()
    memory_gib: float = 2.0  # of a Java process
    master: str | None = None  # the address of a cluster of Spark or Ray; None: one on this host
    rounds: int = 100
    depth: int = 6
    bins: int = 256
    learning_rate: float = 0.1
    epochs: int = 10
    hidden: tuple[int, ...] = (128, 64)
    batch: int = 1024
    sharding: Sharding = "zero3"  # of pytorch-fsdp
    models: int = 10  # that AutoML trains
    search_s: float | None = None  # that AutoML may search for, in place of a number of models
    held_fraction: float = 0.2  # of the training rows, by which AutoML judges its models
    native: Mapping[str, Any] = field(default_factory=dict)
    scaling: ScalingPlace | None = None
    space: tuple[TrialParameter, ...] = ()  # what a search may change; empty: nothing

    @property
    def family(self) -> Family:
        return family_of(self.engine)

    @property
    def passes(self) -> int:
        """How often the whole table is gone through: trees, or epochs; of AutoML its models."""
        return {"trees": self.rounds, "mlp": self.epochs, "automl": self.models}[self.family]

    @property
    def takes_all_rows(self) -> bool:
        """False of a point of weak scaling, which trains on the share of its workers."""
        return self.scaling is None or "strong" in self.scaling.kinds or self.workers == self.scaling.most

    def share_of(self, rows: int) -> int:
        """Of so many training rows, those that the engine trains on.

        >>> EngineSpec(name="a", engine="pytorch", threads=1).share_of(1000)
        1000
        """
        if self.takes_all_rows or self.scaling is None:
            return rows
        return rows * self.workers // self.scaling.most

    def tabular_job(self, rows: int, columns: int, facts: TableFacts | None = None) -> TabularJob | None:
        """The same work as `kind: tabular` of a workload file, which the predictor sizes. Of more than two classes each
        round grows a tree for each; a column has no more bins than values. None of AutoML, whose models are not
        known before."""
        facts = facts or TableFacts()
        if self.family == "automl":
            return None
        if self.family == "mlp":
            return TabularJob(
                rows=rows, features=columns, method="mlp", epochs=self.epochs, hidden_layers=self.hidden,
                global_batch=self.batch, engine=self.engine,
            )  # fmt: skip
        trees = self.rounds * (facts.classes if facts.classes > 2 else 1)
        return TabularJob(
            rows=rows, features=columns, trees=trees, depth=min(self.depth, ceil(log2(max(rows, 2)))),
            bins=max(min(self.bins, facts.values), 2), engine=self.engine,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTerms:
    """A search for hyper-parameters, of the same budget for every engine on every data set; one of the three.

    `work_s`: seconds of preparing and training of all trials together; `usd`: their dollars at the bench's price.
    `validation_fraction`: of the training rows, on which trials are judged.
    """

    trials: int | None
    work_s: float | None
    usd: float | None
    sampler: SearchSampler
    seed: int
    validation_fraction: float

    def seconds(self, usd_per_hour: float | None) -> float | None:
        """The budget in seconds of preparing and training; None: it is counted in trials."""
        if self.usd is None:
            return self.work_s
        assert usd_per_hour, "the file is refused without a price"
        return self.usd / usd_per_hour * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """A whole bench. `digest` is the SHA-256 of the file's text: a bench is resumed with the same file alone."""

    name: str
    data: tuple[BenchData, ...]
    engines: tuple[EngineSpec, ...]
    repeats: int
    seed: int
    validation_fraction: float
    test_fraction: float
    timeout_s: float
    usd_per_hour: float | None
    digest: str
    instance: str | None = None  # priced by the catalog in place of a stated price
    region: str | None = None
    price_note: str = ""  # where the price comes from
    search: SearchTerms | None = None

    def cells(self) -> list[tuple[BenchData, EngineSpec, int]]:
        """Every cell in the order it runs: repeats outermost, so that engines alternate and drift meets all alike."""
        return [(data, engine, turn) for data in self.data for turn in range(self.repeats) for engine in self.engines]
