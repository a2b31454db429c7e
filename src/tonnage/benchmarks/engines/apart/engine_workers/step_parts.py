"""What a step of data-parallel training is made of: fetching alone, without exchange, with it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 3  # each way by turns, so that drift meets all alike
MOST_STEPS = 20  # of a round


@dataclass(frozen=True)
class TimedStep:
    """What a step needs. `batch`: rows of one worker. `apart`: model and optimizer of a step without exchange where the
    model itself cannot leave it out; None: it can (DDP)."""

    model: Any
    rows: Any
    targets: Any
    loss_of: Any
    optimizer: Any
    batch: int
    apart: tuple[Any, Any] | None = None


def looked_into(torch: Any, parts: TimedStep, world: int, *, synchronize: bool) -> dict[str, float | None]:
    """Mean seconds a step of each way; every rank calls this, and all begin a round together.

    Changes the weights of the model. `synchronize`: wait for the device at the end of a round.
    """
    batches = torch.randperm(len(parts.rows)).to(parts.rows.device).split(parts.batch)
    whole = [one for one in batches if len(one) == min(parts.batch, len(parts.rows))][:MOST_STEPS]
    spent = {"input_s": 0.0, "alone_s": 0.0, "synced_s": 0.0}
    waited: float | None = 0.0
    for _ in range(ROUNDS):
        for way in spent:
            if world > 1:
                torch.distributed.barrier()
            before, begun = waited_s(), time.perf_counter()
            for one in whole:
                _step(parts, one, way, world)
            if synchronize:
                torch.cuda.synchronize()
            spent[way] += time.perf_counter() - begun
            after = waited_s()
            if way == "alone_s":
                waited = None if waited is None or before is None or after is None else waited + after - before
    steps = ROUNDS * len(whole)
    means: dict[str, float | None] = {name: seconds / steps for name, seconds in spent.items()}
    return means | {"waited_s": None if waited is None else waited / steps, "rows": float(len(whole[0]))}


def _step(parts: TimedStep, one: Any, way: str, world: int) -> None:
    rows, targets = parts.rows[one], parts.targets[one]
    if way == "input_s":
        return
    model, optimizer, silent = parts.model, parts.optimizer, nullcontext
    if world > 1 and way == "alone_s":
        if parts.apart is None:
            silent = parts.model.no_sync
        else:
            model, optimizer = parts.apart
    with silent():
        optimizer.zero_grad(set_to_none=True)
        parts.loss_of(model(rows).squeeze(-1), targets).backward()
        optimizer.step()


def waited_s() -> float | None:
    """Seconds that this thread has been ready to run and waited for a processor (Linux: the second figure of
    `schedstat`, nanoseconds; Documentation/scheduler/sched-stats); None where the system does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except OSError:
        return None
