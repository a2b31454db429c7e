"""What every engine does: the contract of an adapter."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class EngineFault(Exception):
    """Why an engine has no result, in words for the one who reads the report."""


class BaseEngine:
    """One engine. `start` imports and starts it, `prepare` brings the rows into its own form, `fit` trains.

    `fit` gives (passes, seconds since its start) for each tree or epoch; `predict_at` scores of a part after so many.
    """

    packages: tuple[str, ...] = ()

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.table: Any = None

    def start(self) -> None:
        raise NotImplementedError

    def prepare(self, table: Any) -> None:
        raise NotImplementedError

    def warm_up(self) -> None:
        """A short training on the few rows that were prepared for it."""
        self.fit(passes=min(3, self.job["passes"]))

    def fit(self, passes: int) -> list[tuple[int, float]]:
        raise NotImplementedError

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        raise NotImplementedError

    def settle(self) -> None:
        """Bring what was trained to rank 0, after the clock has stopped; every rank calls it."""

    def known_curve(self) -> list[list[float]] | None:
        """[passes, seconds, quality] where the engine itself scored on the way; None: `predict_at` is asked."""
        return None

    def steps(self) -> list[dict[str, float | None]]:
        """By rank, what a step of training is made of, looked at apart from what is timed; [] where that is not
        measured."""
        return []

    def clocked(self) -> dict[str, float]:
        """What the engine itself clocked of `fit`; {} where that call was training and nothing besides.

        `train_s`, `cpu_s`, and seconds of the call that belong to other phases: `startup_s`, `warmup_s`, `prepare_s`.
        `work_ended_at`: when the training was over, by this host's clock.
        """
        return {}

    def memory_elsewhere(self) -> int:
        """Peak bytes of workers that are not below this process."""
        return 0

    def what_died(self) -> str | None:
        """After a failure: which process of the engine has died, and how; None: nothing is known of that."""
        return None

    def close(self) -> None:
        """End what was started."""

    def versions(self) -> dict[str, str]:
        found = {}
        for name in (*self.packages, "numpy"):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                continue  # a package under another name: xgboost-cpu beside xgboost
        return found

    def workers(self) -> list[dict[str, Any]]:
        """Each process that trains, with the devices it sees."""
        return [{"rank": 0, "pid": os.getpid(), "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}]

    @property
    def on_gpu(self) -> bool:
        return bool(self.job["devices"])
