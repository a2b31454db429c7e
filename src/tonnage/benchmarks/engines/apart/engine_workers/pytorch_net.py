"""PyTorch: a multi-layer perceptron, in one process or in several that share the rows (DDP)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from .base import BaseEngine
from .step_parts import StepParts, looked_into

MEETING_S = 120  # within which all ranks must be there


class Engine(BaseEngine):
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
        torch, task = self._torch, self.job["task"]
        self.table = table
        train = table.features["train"]
        self._mean, self._scale = train.mean(axis=0), train.std(axis=0) + 1e-6
        target = table.target["train"]
        self._middle, self._width = 0.0, 1.0
        if task == "regression":
            self._middle, self._width = float(target.mean()), float(target.std()) or 1.0
        mine = slice(self._rank, len(train) // self._world * self._world, self._world)
        self._x = torch.from_numpy((train[mine] - self._mean) / self._scale).to(self._device)
        kind = torch.int64 if task == "multiclass" else torch.float32
        self._y = torch.from_numpy((target[mine] - self._middle) / self._width).to(kind).to(self._device)

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
        self._parts = StepParts(model=trained, rows=self._x, targets=self._y, loss_of=loss_of, optimizer=optimizer,
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

    def _step_parts(self) -> StepParts:
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
        rows = torch.from_numpy((self.table.features[part] - self._mean) / self._scale).to(self._device)
        model = self._network().to(self._device).eval()
        scores = []
        for one in passes:
            model.load_state_dict(self._states[one - 1])
            with torch.no_grad():
                found = torch.cat([model(some) for some in rows.split(65_536)]).squeeze(-1)
            task = self.job["task"]
            found = found.sigmoid() if task == "binary" else found.softmax(-1) if task == "multiclass" else found
            scores.append(found.cpu().numpy() * self._width + self._middle)
        return scores

    def workers(self) -> list[dict[str, Any]]:
        mine = {"rank": self._rank, "pid": os.getpid(), "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}
        if self._world == 1:
            return [mine]
        every: list[Any] = [None] * self._world
        self._torch.distributed.all_gather_object(every, mine)
        return every

    def close(self) -> None:
        if self._world > 1:
            self._torch.distributed.destroy_process_group()
        codes = [other.wait(timeout=MEETING_S) for other in self._others]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}")
