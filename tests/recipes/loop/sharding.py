"""A program of two ranks: shares out a model, writes its state, reads it back, and says what memory that took."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tonnage.recipes.checkpoints.shards import read_shards, shard_bytes, write_shards
from tonnage.recipes.sharding import shard
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
    write_shards(engine, folder)
    rise = peak_bytes() - before
    kept = [local(one).clone() for one in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            local(parameter).zero_()
    read_shards(engine, folder)
    same = all(torch.equal(local(one), before) for one, before in zip(model.parameters(), kept, strict=True))
    said = {"rise": rise, "own": shard_bytes(engine), "same": same}
    (folder / f"rank-{team.rank}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()


def local(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local()
    return found


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
