"""PyTorch: a multi-layer perceptron, in one process or in several that share the rows (DDP)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from .base import BaseEngine
from .step_parts import TimedStep, looked_into

MEETING_S = 120  # within which all ranks must be there
REAPED_S = 3.0  # after a failure: what a rank that has died needs to be seen as ended


@dataclass(frozen=True)
class FeatureScales:
    """Mean and width (standard deviation) of each column of the training rows, and of a target that is a number."""

    mean: Any
    width: Any
    target_mean: float = 0.0
    target_width: float = 1.0


def scales_of(table: Any, task: str) -> FeatureScales:
    """Of all training rows, whichever rank holds them."""
    features, target = table.features["train"], table.target["train"]
    found = FeatureScales(mean=features.mean(axis=0), width=features.std(axis=0) + 1e-6)
    if task != "regression":
        return found
    return replace(found, target_mean=float(target.mean()), target_width=float(target.std()) or 1.0)


class PyTorchEngine(BaseEngine):
    packages = ("torch",)

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self._rank, self._world = job["rank"], job["workers"]
        self._others: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        if self._rank == 0:
            self._others = [self._start_rank(rank) for rank in range(1, self._world)]
        import torch

        self._torch: Any = torch
        torch.set_num_threads(max(self.job["threads"] // self._world, 1))
        self._device = torch.device("cuda:0" if self.on_gpu else "cpu")
        if self._world > 1:
            meeting = Path(self.job["folder"]) / "ranks"
            torch.distributed.init_process_group(
                "nccl" if self.on_gpu else "gloo", init_method=f"file://{meeting}", rank=self._rank,
                world_size=self._world, timeout=timedelta(seconds=MEETING_S),
            )  # fmt: skip

    def _start_rank(self, rank: int) -> subprocess.Popen[bytes]:
        devices = self.job["devices"]
        seen = {"CUDA_VISIBLE_DEVICES": devices[rank]} if devices else {}
        return subprocess.Popen([sys.executable, "-m", "engine_workers", *sys.argv[1:3], str(rank)],
                                env=os.environ | seen)  # fmt: skip

    def prepare(self, table: Any) -> None:
        self.table = table
        features, target = table.features["train"], table.target["train"]
        mine = slice(self._rank, len(features) // self._world * self._world, self._world)
        self.take(features[mine], target[mine], scales_of(table, self.job["task"]))

    def take(self, features: Any, target: Any, scales: FeatureScales) -> None:
        """The rows of this rank as tensors on its device."""
        torch, self.scales = self._torch, scales
        self._x = torch.from_numpy((features - scales.mean) / scales.width).to(self._device)
        kind = torch.int64 if self.job["task"] == "multiclass" else torch.float32
        self._y = torch.from_numpy((target - scales.target_mean) / scales.target_width).to(kind).to(self._device)

    def fit(self, passes: int) -> list[tuple[int, float]]:
        torch, job = self._torch, self.job
        torch.manual_seed(job["seed"])
        self._model = self._network().to(self._device)
        trained = self._together()
        optimizer = self._optimizer(self._model)
        loss_of = {"binary": torch.nn.BCEWithLogitsLoss(), "multiclass": torch.nn.CrossEntropyLoss(),
                   "regression": torch.nn.MSELoss()}[job["task"]]  # fmt: skip
        batch = max(job["batch"] // self._world, 1)
        order = torch.Generator().manual_seed(job["seed"] + self._rank)
        self._parts = TimedStep(model=trained, rows=self._x, targets=self._y, loss_of=loss_of, optimizer=optimizer,
                                batch=batch)  # fmt: skip
        begun, marks = time.monotonic(), []
        self._states = []
        for epoch in range(passes):
            trained.train()
            for rows in torch.randperm(len(self._x), generator=order).to(self._device).split(batch):
                optimizer.zero_grad(set_to_none=True)
                loss_of(trained(self._x[rows]).squeeze(-1), self._y[rows]).backward()
                optimizer.step()
            if self.on_gpu:
                torch.cuda.synchronize()
            marks.append((epoch + 1, time.monotonic() - begun))
            self._states.append(
                {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}
            )
        return marks

    def _optimizer(self, model: Any) -> Any:
        return self._torch.optim.AdamW(model.parameters(), **({"lr": self.job["learning_rate"]} | self.job["native"]))

    def _together(self) -> Any:
        """The model as this rank trains it: all of it, gradients exchanged (DDP)."""
        if self._world == 1:
            return self._model
        return self._torch.nn.parallel.DistributedDataParallel(self._model)

    def steps(self) -> list[dict[str, float | None]]:
        """Seconds of a step: fetching its rows, alone (without the exchange of gradients), and with the exchange; of
        the time alone, what the thread waited for a processor."""
        mine = looked_into(self._torch, self._step_parts(), self._world, synchronize=self.on_gpu)
        if self._world == 1:
            return [mine]
        every: list[Any] = [None] * self._world
        self._torch.distributed.all_gather_object(every, mine)
        return every

    def _step_parts(self) -> TimedStep:
        return self._parts

    def _network(self) -> Any:
        nn = self._torch.nn
        outputs = self.table.classes if self.job["task"] == "multiclass" else 1
        widths = [self.table.features["train"].shape[1], *self.job["hidden"]]
        layers = [layer for inner, outer in pairwise(widths)
                  for layer in (nn.Linear(inner, outer), nn.ReLU())]  # fmt: skip
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        torch = self._torch
        scales = self.scales
        rows = torch.from_numpy((self.table.features[part] - scales.mean) / scales.width).to(self._device)
        model = self._network().to(self._device).eval()
        scores = []
        for one in passes:
            model.load_state_dict(self._states[one - 1])
            with torch.no_grad():
                found = torch.cat([model(some) for some in rows.split(65_536)]).squeeze(-1)
            task = self.job["task"]
            found = found.sigmoid() if task == "binary" else found.softmax(-1) if task == "multiclass" else found
            scores.append(found.cpu().numpy() * scales.target_width + scales.target_mean)
        return scores

    def workers(self) -> list[dict[str, Any]]:
        mine = {"rank": self._rank, "pid": os.getpid(), "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}
        if self._world == 1:
            return [mine]
        every: list[Any] = [None] * self._world
        self._torch.distributed.all_gather_object(every, mine)
        return every

    def what_died(self) -> str | None:
        """Ranks besides this one that a signal has ended; one that raised something has said so itself."""
        end = time.monotonic() + REAPED_S
        while time.monotonic() < end and all(one.poll() is None for one in self._others):
            time.sleep(0.05)
        killed = [
            f"rank {rank} (process {one.pid}) was ended by {signal.Signals(-one.returncode).name}"
            for rank, one in enumerate(self._others, start=1)
            if (one.poll() or 0) < 0
        ]
        return "; ".join(killed) or None

    def close(self) -> None:
        if self._world > 1:
            self._torch.distributed.destroy_process_group()
        codes = [other.wait(timeout=MEETING_S) for other in self._others]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}")
