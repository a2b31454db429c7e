"""`python -m engine_workers JOB RESULT [RANK]`: one engine, one data set, one repeat, measured phase by phase."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from .base import EngineFault
from .process import busy_s, die_with_parent, enter_phase, fail, pin, tree_cpu_s

ENGINES = {  # module of the adapter: its class
    "scikit-learn": "scikit_learn:ScikitLearnEngine", "xgboost": "xgboost_trees:XGBoostEngine",
    "lightgbm": "lightgbm_trees:LightGBMEngine", "catboost": "catboost_trees:CatBoostEngine",
    "pytorch": "pytorch_net:PyTorchEngine", "pytorch-fsdp": "pytorch_fsdp:PyTorchFSDPEngine",
    "h2o-gbm": "h2o_alone:H2OAloneEngine", "h2o-xgboost": "h2o_alone:H2OAloneEngine",
    "sparkling-gbm": "h2o_sparkling:SparklingEngine", "sparkling-xgboost": "h2o_sparkling:SparklingEngine",
    "h2o-automl": "h2o_automl:AloneAutoML", "sparkling-automl": "h2o_automl:SparklingAutoML",
    "spark-gbt": "spark_ml:SparkMLEngine", "spark-forest": "spark_ml:SparkMLEngine",
    "ray-xgboost": "ray_xgboost:RayXGBoostEngine", "ray-pytorch": "ray_pytorch:RayPyTorchEngine",
}  # fmt: skip
WARM_UP_ROWS = 2_000
MOST_POINTS = 20  # of the curve of quality over time


def main() -> None:
    """Reads the job, measures, writes the result whole."""
    job_file, result_file = Path(sys.argv[1]), Path(sys.argv[2])
    job: dict[str, Any] = json.loads(job_file.read_text())
    job["rank"] = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    die_with_parent()
    job["cores"] = pin(job["threads"])
    try:
        result = measure(job) | {"cores": job["cores"]}
    except EngineFault as fault:
        fail(job, str(fault))
        raise
    if job["rank"] == 0:
        beside = result_file.with_suffix(".part")
        beside.write_text(json.dumps(result))
        os.replace(beside, result_file)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each phase, processor seconds of the training, quality at its end and on the way.

    Raises EngineFault where a process of the engine died, or the engine says otherwise why it cannot go on.
    """
    module, _, name = ENGINES[job["engine"]].partition(":")
    engine = getattr(import_module(f".{module}", __package__), name)(job)
    try:
        return _measured(engine, job)
    except EngineFault:
        raise
    except Exception as error:
        died = engine.what_died()
        if died is None:
            raise
        raise EngineFault(died) from error


def _measured(engine: Any, job: dict[str, Any]) -> dict[str, Any]:
    from .table import BenchTable

    clock = time.monotonic
    enter_phase(job, "starting")
    engine.start()
    startup_s = clock() - job["spawned_at"]
    begun = clock()
    table = BenchTable(Path(job["data"]))
    if job["rows_of_workers"]:  # weak scaling: the share of these workers in what the most of them train on
        table = table.first(table.rows * job["workers"] // job["rows_of_workers"])
    load_s = clock() - begun
    begun = clock()
    enter_phase(job, "warming up")
    engine.prepare(table.first(WARM_UP_ROWS))
    engine.warm_up()
    warmup_s = clock() - begun
    enter_phase(job, "preparing the rows")
    others = OtherPrograms(job)
    begun = clock()
    engine.prepare(table)
    prepare_s = clock() - begun
    enter_phase(job, "training")
    cpu, begun = tree_cpu_s(), clock()
    marks = engine.fit(passes=job["passes"])
    train_s = clock() - begun
    cpu_s = tree_cpu_s() - cpu
    busy_cores = others.cores()
    engine.settle()
    clocked = engine.clocked()
    result = {
        "startup_s": startup_s + clocked.get("startup_s", 0.0), "load_s": load_s,
        "warmup_s": warmup_s + clocked.get("warmup_s", 0.0), "prepare_s": prepare_s + clocked.get("prepare_s", 0.0),
        "train_s": clocked.get("train_s", train_s), "cpu_s": clocked.get("cpu_s", cpu_s),
        "work_ended_at": clocked.get("work_ended_at", begun + train_s),
        "train_rows": table.rows, "versions": engine.versions(), "workers": engine.workers(),
        "memory_elsewhere_bytes": engine.memory_elsewhere(),
        "busy_during_cores": None if clocked else busy_cores,  # Ray's workers end before they can be counted
    }  # fmt: skip
    enter_phase(job, "judging what was trained")
    if job["look_into_steps"]:
        result["steps"] = engine.steps()
    if job["rank"] == 0:
        result |= judge(engine, table, job, marks)
    engine.close()
    return result


class OtherPrograms:
    """What other programs take of the cores of this work: how busy they were, less what the work itself used."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._known = job["master"] is None  # workers of a cluster by its address may be on this machine too
        self._cores = job["cores"]
        self._begun_s, self._busy_s, self._own_s = time.monotonic(), busy_s(self._cores), tree_cpu_s()

    def cores(self) -> float | None:
        """Cores, the mean since the beginning; None where it is not known."""
        busy_now_s, seconds = busy_s(self._cores), time.monotonic() - self._begun_s
        if not self._known or self._busy_s is None or busy_now_s is None or seconds <= 0:
            return None
        return max(busy_now_s - self._busy_s - (tree_cpu_s() - self._own_s), 0.0) / seconds


def judge(engine: Any, table: Any, job: dict[str, Any], marks: list[tuple[int, float]]) -> dict[str, Any]:
    """Quality on the test rows at the end, and on the validation rows at points on the way: not timed. Of a trial of a
    search, which has no test rows, the quality is that on its validation rows."""
    from .table import quality

    kept = marks if len(marks) <= MOST_POINTS else [marks[-1 - round(place * (len(marks) - 1) / (MOST_POINTS - 1))]
                                                    for place in reversed(range(MOST_POINTS))]  # fmt: skip
    known = engine.known_curve()
    if known is None:
        scores = engine.predict_at([passes for passes, _ in kept], "validation")
        known = [
            [passes, seconds, quality(job["metric"], table.target["validation"], score)]
            for (passes, seconds), score in zip(kept, scores, strict=True)
        ]
    judged_on = "test" if "test" in table.target else "validation"
    (last,) = engine.predict_at([marks[-1][0]], judged_on)
    return {"curve": known, "quality": quality(job["metric"], table.target[judged_on], last)}


if __name__ == "__main__":
    main()
