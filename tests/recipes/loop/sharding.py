"""A program of two ranks: shares out a model, writes its state, reads it back, saves the model, and says what memory
that took. With `alone` as its second argument, one process that reads what the two have written."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from tonnage.recipes.checkpoints.snapshot import read_shards, shard_bytes, start_shards, write_shards
from tonnage.recipes.engine import shard
from tonnage.recipes.finishing import gather_onto_disk
from tonnage.recipes.team import gather_team

WIDTH, LAYERS = 1024, 24


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    team = gather_team(rank=int(os.environ["RANK"]), world=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    shard(model, stage="zero3", device="cpu", world=2, deal=lambda _: None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    engine: Any = SimpleNamespace(model=model, optimizer=SimpleNamespace(optimizer=optimizer), team=team)
    before = peak_bytes()
    write_shards(engine, folder, team.group)
    rise = peak_bytes() - before
    kept = [local(one).clone() for one in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            local(parameter).zero_()
    read_shards(engine, folder)
    same = all(torch.equal(local(one), before) for one, before in zip(model.parameters(), kept, strict=True))
    total = sum(float(local(one.detach()).double().square().sum()) for one in model.parameters())
    said = {"rise": rise, "own": shard_bytes(engine), "same": same, "squares": total}
    said["same_beside"] = beside_training(model, engine, folder / "beside", kept)
    said |= finish(model, team, folder)
    (folder / f"rank-{team.rank}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()


def beside_training(model: nn.Module, engine: Any, folder: Path, kept: list[torch.Tensor]) -> bool:
    """Whether what is written beside the training is what was there when the write began."""
    flight = start_shards(engine, folder, torch.distributed.new_group(backend="gloo"))
    with torch.no_grad():
        for parameter in model.parameters():
            local(parameter).zero_()
    flight.result()
    read_shards(engine, folder)
    return all(torch.equal(local(one), before) for one, before in zip(model.parameters(), kept, strict=True))


def finish(model: nn.Module, team: Any, folder: Path) -> dict[str, Any]:
    """Bring the model together and save it on rank 0; what that took of each rank's own memory."""
    scratch = folder / "tensors" if team.main else None
    with Watch() as watch:
        gather_onto_disk(model, scratch, only_trained=False)
        if team.main:
            save_file(dict(model.state_dict()), folder / "model.safetensors")
    return {"finishing_rise": watch.rise}


class Watch:
    """The most that this process's own memory (no pages of files) rose meanwhile."""

    def __enter__(self) -> Watch:
        self.before, self.rise, self._over = own_bytes(), 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.001):
            self.rise = max(self.rise, own_bytes() - self.before)


def own_bytes() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024


def alone(folder: Path) -> None:
    model = nn.Sequential(nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    engine: Any = SimpleNamespace(
        model=model, optimizer=SimpleNamespace(optimizer=optimizer), team=gather_team(rank=0, world=1)
    )
    read_shards(engine, folder)
    first = optimizer.state[next(model.parameters())]
    total = sum(float(one.detach().double().square().sum()) for one in model.parameters())
    said = {"squares": total, "steps": float(first["step"]), "first_moment": float(first["exp_avg"].mean())}
    (folder / "alone.json").write_text(json.dumps(said))


def local(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local()
    return found


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    (alone if sys.argv[2:] == ["alone"] else main)(Path(sys.argv[1]))
