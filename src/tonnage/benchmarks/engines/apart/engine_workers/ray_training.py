"""Ray Train: what its engines share. The rows go to the workers in shares through Ray's object store, one a worker.

`Trainer.fit` of Ray Train starts its workers, trains and ends them. What a worker does on the way is clocked there and
reported to an actor beside them: fetching and preparing its share, a warm-up, the training. The rest of the call is
start and end of the workers. Source: Ray 2.60, «Ray Train: Train function, scaling, failures» (`ray.train.v2`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

from .base import BaseEngine, EngineFault
from .ray_cluster import open_cluster, threads_each

WARM_UP_ROWS = 2_000  # of all workers together
WARM_UP_PASSES = 3
GROUP_S = "120"  # within which all workers must have started


@dataclass(frozen=True)
class WorkerShare:
    """A worker's part of the rows, as the engines of one process read a table. `classes` and `scales` (of the features
    and the target, where the engine takes them) are of all rows."""

    features: dict[str, Any]
    target: dict[str, Any]
    classes: int
    scales: Any

    def first(self, rows: int) -> WorkerShare:
        features, target = ({"train": part["train"][:rows]} for part in (self.features, self.target))
        return replace(self, features=features, target=target)


class WorkerArrivals:
    """An actor beside the workers: who they are, and what each says at its end."""

    def __init__(self) -> None:
        self._here: dict[int, dict[str, Any]] = {}
        self._done: dict[int, dict[str, Any]] = {}

    def begin(self, rank: int, said: dict[str, Any]) -> None:
        self._here[rank] = said

    def end(self, rank: int, said: dict[str, Any]) -> None:
        self._done[rank] = said

    def all(self) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
        return self._here, self._done


def on_worker(config: dict[str, Any]) -> None:
    """What each worker of Ray Train carries out. `learner` is the engine of one process that trains on its share."""
    import ray
    import ray.train

    clock, arrivals = time.monotonic, config["arrivals"]
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    mine = {"rank": rank, "pid": os.getpid(), "node": ray.util.get_node_ip_address(), "devices": None}
    ray.get(arrivals.begin.remote(rank, mine))
    learner = config["learner"](config["job"] | {"rank": rank, "workers": world})
    learner.begin()
    begun = clock()
    (share,) = ray.get([config["shares"][rank]])
    fetched_s = clock() - begun
    begun = clock()
    learner.prepare(share.first(WARM_UP_ROWS // world))
    learner.fit(min(WARM_UP_PASSES, config["job"]["passes"]))
    learner.together()
    warmup_s = clock() - begun
    begun = clock()
    learner.prepare(share)
    learner.together()
    prepare_s = clock() - begun + fetched_s
    cpu, begun = time.process_time(), clock()
    marks = learner.fit(config["job"]["passes"])
    learner.together()
    ended = clock()
    cpu_s = time.process_time() - cpu
    steps = learner.steps() if config["job"]["look_into_steps"] else []
    model = learner.model() if rank == 0 else None
    ray.get(arrivals.end.remote(rank, {
        "warmup_s": warmup_s, "prepare_s": prepare_s, "train_s": ended - begun, "ended_at": ended, "cpu_s": cpu_s,
        "peak_bytes": peak_bytes(), "marks": marks, "steps": steps, "model": model,
    }))  # fmt: skip


def peak_bytes() -> int:
    """Most resident memory that this process has had (getrusage(2): kibibytes on Linux, bytes on macOS)."""
    import resource
    import sys

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


class RayEngine(BaseEngine):
    """The driver's side. What it predicts with is what rank 0 trained."""

    trainer = ""  # the class of Ray Train, as `module:Name`
    learner: Any = None

    def start(self) -> None:
        self._ray = open_cluster(self.job)
        from importlib import import_module

        module, _, name = self.trainer.partition(":")
        self._trainer = getattr(import_module(module), name)
        self._done: dict[int, dict[str, Any]] = {}
        self._here: dict[int, dict[str, Any]] = {}

    def prepare(self, table: Any) -> None:
        """Shares of equal length into Ray's object store: row r goes to worker r modulo their count, as with DDP."""
        self.table = table
        world, job = self.job["workers"], self.job
        whole = table.rows // world * world
        features, target = table.features["train"], table.target["train"]
        classes, scales = table.classes if job["task"] == "multiclass" else 2, self._scales()
        mine = [slice(rank, whole, world) for rank in range(world)]
        self._shares = [
            self._ray.put(WorkerShare({"train": features[one].copy()}, {"train": target[one].copy()}, classes, scales))
            for one in mine
        ]

    def _scales(self) -> Any:
        return None

    def warm_up(self) -> None:
        """Nothing here: processes of Ray Train end with their training, so that each warms itself up in `fit`."""

    def fit(self, passes: int) -> list[tuple[int, float]]:
        """EngineFault says which worker died, or what it raised."""
        del passes  # the job says them
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError

        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = GROUP_S
        job = self.job | {"threads": threads_each(self.job)}
        arrivals = self._ray.remote(num_cpus=0)(WorkerArrivals).remote()
        config = {"job": job, "learner": self.learner, "shares": self._shares, "arrivals": arrivals}
        trainer = self._trainer(
            on_worker, train_loop_config=config, **self._backend(),
            scaling_config=ScalingConfig(num_workers=job["workers"], resources_per_worker={"CPU": job["threads"]},
                                         placement_strategy="SPREAD"),
            run_config=RunConfig(name="bench", storage_path=job["folder"],
                                 failure_config=FailureConfig(max_failures=0, controller_failure_limit=0)),
        )  # fmt: skip
        begun = time.monotonic()
        try:
            trainer.fit()
        except TrainingFailedError as error:
            here, _ = self._ray.get(arrivals.all.remote())
            raise EngineFault(said_of_workers(error, here)) from error
        taken = time.monotonic() - begun
        self._here, self._done = self._ray.get(arrivals.all.remote())
        self._clocked(taken)
        self._take(self._done[0]["model"])
        return [(int(place), float(at)) for place, at in self._done[0]["marks"]]

    def _backend(self) -> dict[str, Any]:
        """How Ray Train joins the workers, where its own way does not do."""
        return {}

    def _take(self, model: Any) -> None:
        raise NotImplementedError

    def _clocked(self, taken: float) -> None:
        """The slowest worker's seconds of each phase; what is left of the call is start and end of the workers."""
        phases = {name: max(one[name] for one in self._done.values()) for name in ("warmup_s", "prepare_s", "train_s")}
        self._phases = phases | {
            "startup_s": max(taken - sum(phases.values()), 0.0),
            "cpu_s": sum(one["cpu_s"] for one in self._done.values()),
        }  # fmt: skip
        if self.job["master"] is None:
            self._phases["work_ended_at"] = max(one["ended_at"] for one in self._done.values())

    def clocked(self) -> dict[str, float]:
        return self._phases

    def memory_elsewhere(self) -> int:
        """Of a cluster by its address: the workers' own peaks, which are not below this process."""
        return 0 if self.job["master"] is None else sum(one["peak_bytes"] for one in self._done.values())

    def steps(self) -> list[dict[str, float | None]]:
        found: list[dict[str, float | None]] = self._done[0]["steps"]
        return found

    def workers(self) -> list[dict[str, Any]]:
        return [self._here[rank] for rank in sorted(self._here)]

    def close(self) -> None:
        self._ray.shutdown()


def said_of_workers(error: Exception, here: dict[int, dict[str, Any]]) -> str:
    """Why Ray Train has given up, in a line: what died with its process and machine, or what a worker raised."""
    from ray.exceptions import RayActorError

    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    died, raised = [], []
    for rank, failure in sorted(failures.items()):
        inner = getattr(failure, "health_check_failure", failure)
        if isinstance(inner, RayActorError):
            who = here.get(rank)
            named = f" (process {who['pid']} on {who['node']})" if who else ""
            died.append(f"the Ray worker of rank {rank}{named} died: {_why(inner)}")
        else:
            raised.append(f"rank {rank}: {type(inner).__name__}: {' '.join(str(inner).split())}")
    if died or raised:
        return "; ".join(died or raised[:1])
    cause = getattr(error, "controller_failure", error)
    return f"Ray Train: {' '.join(str(cause).split())}"


def _why(error: Exception) -> str:
    """Ray's own cause, without its address book and its list of what might be."""
    text = " ".join(str(error).split())
    _, _, cause = text.partition("The actor is dead because ")
    return (cause or text).partition(" Some common causes")[0].strip()
