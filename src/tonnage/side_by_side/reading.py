"""Bench file -> `BenchSpec`: defaults by engine, the engine once for each number of workers of `scaling`, what
contradicts itself refused with its line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tonnage.comparison.user_files import parse_entries
from tonnage.http.urls import without_secrets
from tonnage.side_by_side.entries import BenchEntry, BenchFileEntry, DataEntry, EngineEntry, ScalingEntry
from tonnage.side_by_side.search_entries import search_problems, space_of, space_problems, terms_of
from tonnage.side_by_side.spec import (
    DISTRIBUTED,
    METRICS,
    ON_PROCESSORS,
    PACKAGED_TASKS,
    BenchData,
    BenchSpec,
    Cluster,
    EngineSpec,
    Family,
    Generated,
    ScalingKind,
    ScalingPlace,
    SqlSource,
    Task,
    cluster_of,
    environment_of,
    family_of,
)
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text
from tonnage.workload.file.yaml_lines import KeyPath

PAGE: Final = "docs/bench-engines.md"
TREE_KEYS: Final = ("rounds", "depth", "bins")
NET_KEYS: Final = ("epochs", "hidden", "batch")
OWN_KEYS: Final[Mapping[Family, tuple[str, ...]]] = MappingProxyType({
    "trees": (*TREE_KEYS, "learning_rate"), "mlp": (*NET_KEYS, "learning_rate"), "automl": ("models",),
})  # fmt: skip
_PLACE: Final = r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}"
ADDRESSES: Final[Mapping[Cluster, re.Pattern[str]]] = MappingProxyType({
    "Spark": re.compile(rf"spark://({_PLACE})(,({_PLACE}))*"), "Ray": re.compile(rf"auto|(ray://)?({_PLACE})"),
})  # fmt: skip
EXAMPLES: Final[Mapping[Cluster, str]] = MappingProxyType({
    "Spark": "spark://HOST:7077", "Ray": "ray://HOST:10001, or HOST:6379 on one of its machines",
})  # fmt: skip
SOURCES: Final = ("generate", "packaged", "file", "sql")


def load_bench(path: Path) -> BenchSpec:
    """The bench of a file. WorkloadError names line and key of all that cannot be used."""
    return read_bench(load_text(path), file=str(path), folder=path.resolve().parent)


def read_bench(text: str, *, file: str | None = None, folder: Path | None = None) -> BenchSpec:
    """The bench of a text; paths in it start from `folder`. WorkloadError as for a file."""
    entries, document = parse_entries(text, BenchFileEntry, file=file, page=PAGE)
    bench = entries.bench
    raise_problems(_problems(bench), document)
    engines = tuple(made for one in bench.engines for made in scaled(_engine(one, bench), one.scaling))
    raise_problems(_same_points(engines), document)
    return BenchSpec(
        name=bench.name, data=tuple(_data(one, folder or Path()) for one in bench.data),
        engines=engines, repeats=bench.repeats, seed=bench.seed,
        validation_fraction=bench.split.validation, test_fraction=bench.split.test, timeout_s=bench.timeout,
        usd_per_hour=bench.price.usd_per_hour if bench.price else None,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        instance=bench.price.instance if bench.price else None, region=bench.price.region if bench.price else None,
        search=None if bench.search is None else terms_of(bench.search),
    )  # fmt: skip


def scaled(engine: EngineSpec, asked: ScalingEntry | None) -> tuple[EngineSpec, ...]:
    """The points of both curves. With the greatest number of workers they are one: all rows, the whole batch.

    A point of weak scaling has rows and batch in proportion to its workers, so that each worker does the same work.
    """
    if asked is None:
        return (engine,)
    most, found = max(asked.workers), []
    for workers in asked.workers:
        ends = workers == most
        of_point: list[tuple[ScalingKind, ...]] = [asked.kinds] if ends else [(one,) for one in asked.kinds]
        for kinds in of_point:
            weak = kinds == ("weak",)
            batch = max(engine.batch * workers // most, workers) if weak else engine.batch
            name = f"{engine.name}-{workers}w" + ("-weak" if weak and not ends else "")
            place = ScalingPlace(group=engine.name, kinds=kinds, most=most)
            found.append(replace(engine, name=name, workers=workers, threads=workers * asked.threads_per_worker,
                                 devices=engine.devices[:workers], batch=batch, scaling=place))  # fmt: skip
    return tuple(found)


def scaling_problems(here: KeyPath, engine: EngineEntry, asked: ScalingEntry) -> Iterator[Problem]:
    """What contradicts itself."""
    at = (*here, "scaling")
    if engine.engine not in DISTRIBUTED:
        yield Problem(at, f"{engine.engine} runs in one process", f"one of {', '.join(DISTRIBUTED)}")
    for key in ("workers", "threads"):
        if key in engine.model_fields_set:
            yield Problem((*here, key), "is stated by `scaling` too", "leave it out: `scaling` has both")
    rising = all(one < other for one, other in pairwise(asked.workers))
    if len(asked.workers) < 2 or asked.workers[0] != 1 or not rising:
        yield Problem((*at, "workers"), "does not rise from 1, or has one number alone", "workers: [1, 2, 4]")
    if not asked.kinds or len(set(asked.kinds)) != len(asked.kinds):
        yield Problem((*at, "kinds"), "is empty or names one twice", "kinds: [strong, weak]")
    if engine.devices and asked.workers and len(engine.devices) != max(asked.workers):
        yield Problem((*here, "devices"), "one for each of the most workers is needed", f"{max(asked.workers)} of them")


def _problems(bench: BenchEntry) -> Iterator[Problem]:
    for key, items in (("data", bench.data), ("engines", bench.engines)):
        if not items:
            yield Problem(("bench", key), "is empty", f"{PAGE} has an example")
        yield from _same_names(key, [_name(one) for one in items])
    price = bench.price
    if price is not None and (price.usd_per_hour is None) == (price.instance is None):
        yield Problem(("bench", "price"), "is stated twice, or not at all", "give `usd_per_hour` or `instance`")
    if price is not None and price.region is not None and price.instance is None:
        yield Problem(("bench", "price", "region"), "belongs to `instance`", "leave it out")
    for index, data in enumerate(bench.data):
        yield from _data_problems(("bench", "data", index), data)
    for index, engine in enumerate(bench.engines):
        yield from _engine_problems(("bench", "engines", index), engine, bench)
        yield from space_problems(("bench", "engines", index), engine, bench.search)
    if bench.search is not None:
        yield from search_problems(bench)


def _same_names(key: str, names: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(("bench", key, index), f"a second entry named '{name}'", "give it another `name`")


def _same_points(engines: tuple[EngineSpec, ...]) -> Iterator[Problem]:
    names = [one.name for one in engines]
    for name in sorted({one for one in names if names.count(one) > 1}):
        yield Problem(("bench", "engines"), f"'{name}' is a point of `scaling` too", "another `name`")


def _data_problems(here: KeyPath, data: DataEntry) -> Iterator[Problem]:
    given = [name for name in SOURCES if getattr(data, name) is not None]
    if len(given) != 1:
        yield Problem(here, "has no source of rows, or two", f"one of {', '.join(SOURCES)}")
        return
    task = _task(data)
    if data.packaged is not None and data.task not in (None, task):
        yield Problem((*here, "task"), f"{data.packaged} is a set for {task}", "leave `task` out")
    if data.metric is not None and data.metric not in METRICS[task]:
        yield Problem((*here, "metric"), f"does not fit {task}", f"one of {', '.join(METRICS[task])}")
    if data.target is not None and (data.metric or METRICS[task][0]) != "rmse" and data.target >= 1:
        yield Problem((*here, "target"), "can never be reached: the metric ends at 1", "target: 0.9")
    if (data.file is None and data.sql is None) != (data.label is None):
        yield Problem(
            (*here, "label"), "belongs to `file` or `sql`, and they need it", "label: NAME_OF_THE_TARGET_COLUMN"
        )
    yield from _sql_problems((*here, "sql"), data)
    made = data.generate
    if made is not None and made.informative is not None and made.informative > made.columns:
        yield Problem((*here, "generate", "informative"), f"more than the {made.columns} columns", "fewer")
    if made is not None and made.classes is not None and task != "multiclass":
        yield Problem((*here, "generate", "classes"), f"{task} has no such number", "task: multiclass")


def _sql_problems(here: KeyPath, data: DataEntry) -> Iterator[Problem]:
    if data.sql is None:
        return
    if not data.sql.order_by:
        yield Problem((*here, "order_by"), "is empty: the order of rows would not be fixed", "order_by: [id]")
    if data.label in data.sql.order_by:
        yield Problem((*here, "order_by"), f"names the target '{data.label}'", "columns that are a key")
    url = data.sql.database
    if url is not None and without_secrets(url) != url:
        fault = f"has a secret in it: {without_secrets(url)}"
        yield Problem((*here, "database"), fault, "write ${NAME} in its place and set NAME in the environment")


def _engine_problems(here: KeyPath, engine: EngineEntry, bench: BenchEntry) -> Iterator[Problem]:
    family = family_of(engine.engine)
    classes = [one.name for one in bench.data if _task(one) == "multiclass"]
    if engine.engine == "spark-gbt" and classes:
        fault = f"Spark's boosted trees know two classes, and '{classes[0]}' has several"
        yield Problem((*here, "engine"), fault, "engine: spark-forest, or another bench for that set")
    for key in sorted({*TREE_KEYS, *NET_KEYS, "learning_rate", "models"} - set(OWN_KEYS[family])):
        if getattr(engine, key) is not None:
            yield Problem((*here, key), f"{engine.engine} has no such parameter", "leave it out")
    if engine.models is not None and bench.search is not None:
        yield Problem((*here, "models"), "`bench.search` is its budget", "leave it out")
    if engine.sharding is not None and engine.engine != "pytorch-fsdp":
        yield Problem((*here, "sharding"), f"{engine.engine} shares out rows alone, or nothing", "engine: pytorch-fsdp")
    if engine.workers > 1 and engine.engine not in DISTRIBUTED:
        yield Problem((*here, "workers"), f"{engine.engine} runs in one process", f"one of {', '.join(DISTRIBUTED)}")
    threads = engine.threads or bench.threads
    if engine.scaling is None and engine.workers > threads:
        yield Problem((*here, "workers"), f"{engine.workers} workers share {threads} threads", "a thread each or more")
    if engine.devices and engine.engine in ON_PROCESSORS:
        yield Problem((*here, "devices"), f"{engine.engine} trains on processors alone", "leave it out")
    yield from _spark_problems(here, engine)
    yield from _master_problems(here, engine)
    if engine.devices and engine.scaling is None and len(engine.devices) != engine.workers:
        yield Problem((*here, "devices"), "one a worker is needed", f"{engine.workers} of them")
    if engine.scaling is not None:
        yield from scaling_problems(here, engine, engine.scaling)


def _spark_problems(here: KeyPath, engine: EngineEntry) -> Iterator[Problem]:
    """Of engines in Spark, and of keys that they alone have."""
    on_spark = environment_of(engine.engine) == "sparkling"
    if engine.engine == "spark-forest" and engine.learning_rate is not None:
        yield Problem((*here, "learning_rate"), "trees of a forest do not learn from one another", "leave it out")
    if engine.devices and on_spark:
        yield Problem((*here, "devices"), "executors of one Spark session see the same devices", "h2o-xgboost, or none")
    if engine.devices and cluster_of(engine.engine) == "Ray":
        yield Problem((*here, "devices"), "Ray is an engine on processors here", "leave it out")


def _master_problems(here: KeyPath, engine: EngineEntry) -> Iterator[Problem]:
    """Of the address of a cluster."""
    if engine.master is None:
        return
    cluster = cluster_of(engine.engine)
    if cluster is None:
        yield Problem((*here, "master"), f"{engine.engine} runs on no cluster", "spark-gbt or ray-xgboost")
    elif not ADDRESSES[cluster].fullmatch(engine.master):
        fault = f"'{engine.master}' is not an address of a cluster of {cluster}"
        yield Problem((*here, "master"), fault, f"master: {EXAMPLES[cluster]}")


def _name(one: DataEntry | EngineEntry) -> str:
    return one.name or (one.engine if isinstance(one, EngineEntry) else "")


def _task(data: DataEntry) -> Task:
    return PACKAGED_TASKS[data.packaged] if data.packaged is not None else data.task or "binary"


def _data(one: DataEntry, folder: Path) -> BenchData:
    task, made = _task(one), one.generate
    return BenchData(
        name=one.name, task=task, metric=one.metric or METRICS[task][0], target=one.target,
        generated=None if made is None else Generated(
            rows=made.rows, columns=made.columns, informative=made.informative or max(made.columns // 2, 1),
            sparsity=made.sparsity, noise=made.noise, classes=made.classes or 4, seed=made.seed,
        ),
        sql=None if one.sql is None else SqlSource(query=one.sql.query, order_by=one.sql.order_by,
                                                   database=one.sql.database, folder=str(folder.resolve())),
        packaged=one.packaged, file=str(folder / one.file) if one.file is not None else None, label=one.label,
    )  # fmt: skip


def _engine(one: EngineEntry, bench: BenchEntry) -> EngineSpec:
    usual = EngineSpec(name="", engine=one.engine, threads=1)
    stated = {
        key: getattr(one, key) for key in (*TREE_KEYS, *NET_KEYS, "sharding", "models") if getattr(one, key) is not None
    }
    rate = one.learning_rate or (0.001 if usual.family == "mlp" else usual.learning_rate)
    return EngineSpec(
        name=_name(one), engine=one.engine, threads=one.threads or bench.threads, workers=one.workers,
        devices=one.devices, memory_gib=one.memory_gib, master=one.master,
        learning_rate=rate, native=dict(one.native), space=space_of(one) if bench.search is not None else (),
        **stated,
    )  # fmt: skip
