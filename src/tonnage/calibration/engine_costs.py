"""What engines cost beside the physics, before any row of them: H2O, alone and on Spark; processes that Ray joins.

    seconds = factor · T + level_s · depth · trees + round_s · rounds + cell_s · rows · columns + start_s
              + (update_s · rows · columns · depth · trees + score_s · scored rows · trees) / threads
              + calls · call_s + bytes · 2 (n - 1) / n / exchange_bytes_per_s

T: seconds by the physics. H2O's GBM is Java of its own, and T is no part of it: a map and reduce over all rows for each
level of each tree, with a floor that no small table goes below, adds every cell into the histograms of all nodes (none
by subtraction). Its XGBoost is native code that Java calls once a round. Both score training and validation rows on
the way, ten times here, tree by tree in Java. Rows come to H2O as text that
Python writes and Java parses, and to Spark's nodes by Arrow, an assembler and H2O's own frames; each data set is three
of them. Processes that train together on their shares (Ray Train) exchange sums of gradients: XGBoost the histograms of
the smaller child of each node, once a level, and the sum at each root; a network all its gradients, once a step. The
start of Ray and of its workers is no part of this: it is start-up. Engines that are native code in this process
(LightGBM, CatBoost, scikit-learn) have no such costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tonnage.sizing.assumption_table import parameter
from tonnage.sizing.tabular_estimates import FLOAT_BYTES
from tonnage.sizing.tabular_mlp import parameters, steps
from tonnage.sizing.tabular_trees import histogram_bytes
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob

_GBM_PERF: Final = (
    "szilard/GBM-perf results.txt, CPU r4.8xlarge 2024-06-04: H2O's GBM, 100 trees of depth 10, 11.1 s at 0.1M rows, "
    "12.4 s at 1M, 60.7 s at 10M; XGBoost 0.4, 2.7, 40.6 s"
)
_OWN: Final = (
    "own runs on two cores, 2026-11-20 (51,000 rows, 50 trees: alone GBM 2.0 s, XGBoost 3.9 s; one node on Spark 3.9 "
    "and 4.3 s; two nodes 8.4 and 6.3 s)"
)
LOG_SD: Final = 0.6  # 80 %: 0.46 to 2.2. Judgement: hosts, releases and shapes beyond the few runs above


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """Of one engine on one number of nodes. Times are of this module's formula, in seconds."""

    # fmt: off
    factor: float = parameter(1.0, 0.8, 1.8, source="the native code of XGBoost, on the same threads")
    level_s: float = parameter(0.0, 0.0, 0.05, source=f"{_GBM_PERF}: 11 ms a level whatever the rows; {_OWN}")
    update_s: float = parameter(
        0.0, 0.0, 4e-8,
        source=f"thread-seconds a cell: {_GBM_PERF}: (60.7 - 11.1) s · 32 threads / 8e10 cells at 10M rows = 2.0e-8; "
        "processor seconds of own runs on two threads, 2026-11-27 (7,000, 35,000, 140,000 rows): 2.8e-8 and 2.0e-8 "
        "from each table to the next, scores within",
    )
    score_s: float = parameter(
        0.0, 0.0, 4e-7,
        source="thread-seconds a row and tree in Java: H2O's XGBoost of the same runs took 5 to 7 processor seconds "
        "more on 140,000 than on 35,000 rows, for 32 million of them",
    )
    round_s: float = parameter(0.0, 0.0, 0.2, source=_OWN)
    cell_s: float = parameter(
        1.7e-6, 1.0e-6, 4e-6,
        source="Python writes a cell as text in 0.7 us (measured), Java parses it; validation and test rows too, 0.43 "
        "of the training rows: judgement",
    )
    start_s: float = parameter(1.0, 0.5, 3.0, source="three frames at 0.3 s of requests each: own runs on two cores")
    call_s: float = parameter(
        1e-3, 3e-4, 4e-3,
        source="two workers of one host by TCP, who wake one another: own runs of XGBoost on Ray Train, 2026-11-27: "
        "0.3 ms of processor time each, 1.5 to 3.7 ms on a host with other work",
    )
    exchange_bytes_per_s: float = parameter(
        1e9, 4e8, 3e9, source="loopback TCP with a copy on each side and the sum between them, one core: judgement"
    )
    # fmt: on


SCORED: Final = 10 * 1.2  # times the training rows: ten scores, of validation rows too; trees so far are half of them
_SCORE_S: Final = 1.5e-7
_JAVA_TREES: Final[Mapping[str, float]] = MappingProxyType({"factor": 0.0, "update_s": 2e-8, "score_s": _SCORE_S})


def costs_of(engine: str, workers: int) -> EngineCosts | None:
    """The costs of an engine that has some before any row; None: it has none, or nobody knows them."""
    made = _ALONE.get(engine)
    if made is not None:
        return made
    if engine == "sparkling-gbm":
        return EngineCosts(level_s=0.013 + 0.015 * (workers - 1), cell_s=4.3e-6, start_s=8.0, **_JAVA_TREES)
    if engine == "sparkling-xgboost":
        return EngineCosts(round_s=0.045 + 0.04 * (workers - 1), cell_s=4.3e-6, start_s=10.0, score_s=_SCORE_S)
    if engine.startswith("ray-"):
        return EngineCosts(cell_s=RAY_CELL_S, start_s=RAY_START_S)
    return None


_ALONE: Final[Mapping[str, EngineCosts]] = MappingProxyType({
    "h2o-gbm": EngineCosts(level_s=0.008, **_JAVA_TREES),
    "h2o-xgboost": EngineCosts(round_s=0.03, start_s=3.0, score_s=_SCORE_S),
})  # fmt: skip


# A cell is copied into its worker's share and into Ray's store (4 bytes each time, 1 GB/s and more), and read there.
RAY_CELL_S: Final = 2e-8
RAY_START_S: Final = 0.05  # shares written and fetched, one call of Ray each way a worker: judgement, 0.01 to 0.3


def added_seconds(costs: EngineCosts, job: TabularJob, rounds: float, workers: int = 1) -> float:
    """What the engine adds to `factor` times the physics.

    >>> small = TabularJob(rows=1000, features=10, trees=100, depth=5)
    >>> added_seconds(costs_of("h2o-gbm", 1), small, 100.0)
    5.017
    """
    levels = float(job.depth * job.trees) if job.method == "boosted-trees" else 0.0
    own = (
        costs.level_s * levels + costs.round_s * rounds + costs.cell_s * float(job.rows) * job.features + costs.start_s
    )
    if job.engine is None or not job.engine.startswith("ray-") or workers == 1:
        return own
    calls, sent = _exchanged(job)
    return own + calls * costs.call_s + sent * 2.0 * (workers - 1) / workers / costs.exchange_bytes_per_s


def thread_seconds(costs: EngineCosts, job: TabularJob) -> float:
    """What the engine adds on one thread, and that much less on several.

    >>> thread_seconds(costs_of("h2o-gbm", 1), TabularJob(rows=1_000_000, features=10, trees=100, depth=5))
    190.0
    """
    if job.method == "mlp":
        return 0.0
    rows = float(job.rows)
    scored = SCORED * rows * job.trees / 2.0
    return costs.update_s * rows * job.features * job.depth * job.trees + costs.score_s * scored


RAY_BYTES: Final = from_gib(1.8)  # of its own processes, pages that they share counted in each: own runs, 2026-11-27
RAY_WORKER_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"ray-xgboost": from_gib(0.3), "ray-pytorch": from_gib(0.87)}  # of the same runs
)


def process_bytes(engine: str, workers: int) -> float:
    """Memory of an engine's processes beside the work itself: of Ray and its workers; of others that is not counted."""
    each = RAY_WORKER_BYTES.get(engine)
    return 0.0 if each is None else RAY_BYTES + workers * each


def java_bytes(engine: str, workers: int, heap_bytes: float, table_bytes: float) -> float | None:
    """Memory of an engine in Java, all of it: Python, the driver, its nodes, and what of their heaps holds the rows and
    what becomes of them; None of another engine. `table_bytes`: the float32 training table.

    >>> round(java_bytes("h2o-gbm", 1, from_gib(2), 4.0 * 35_000 * 28) / from_gib(1), 2)
    0.6
    """
    known = JAVA_BYTES.get(engine.split("-")[0])
    if known is None or engine.endswith("automl"):
        return None
    base, each = known
    return base + workers * each + min(JAVA_TABLES * table_bytes, workers * heap_bytes)


# Peak resident bytes of own runs on one host, 2026-11-23 to 27, 28 columns, heaps of 2 GiB: 12 of H2O (7,000 to 140,000
# training rows, 0.45 to 1.01 GiB), 16 of Sparkling Water's two nodes (35,000 to 700,000: 2.2 to 4.9 GiB).
JAVA_BYTES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"h2o": (from_gib(0.1), from_gib(0.4)), "sparkling": (from_gib(1.2), from_gib(0.65))}
)
JAVA_TABLES: Final = 27.0  # boxed and compressed copies, scores, and rubbish that no collection has met yet


def _exchanged(job: TabularJob) -> tuple[float, float]:
    """Collectives of a training, and the bytes that all of them sum.

    >>> _exchanged(TabularJob(rows=10_000, features=10, trees=2, depth=3, bins=256))
    (8.0, 327680.0)
    """
    if job.method == "mlp":
        return float(steps(job)), steps(job) * parameters(job) * FLOAT_BYTES
    built = min(2.0 ** (job.depth - 1), float(job.rows))  # 1 at the root, then half of the nodes of each level
    return float((job.depth + 1) * job.trees), job.trees * built * histogram_bytes(job)


UNKNOWN_BEFORE_ROWS: Final = ("pytorch-fsdp",)  # of several workers: what gathering costs a step is not modelled

UNMODELLED: Final = ("spark-gbt", "spark-forest")  # Spark's own trees: a job of Spark for each level of each tree


def is_unknown(engine: str, workers: int) -> bool:
    """Whether an engine without rows has no prediction: one that nobody modelled, or whose exchange nobody did."""
    return engine in UNMODELLED or (engine in UNKNOWN_BEFORE_ROWS and workers > 1)
