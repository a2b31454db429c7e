"""State of every generator of random numbers that a model or a task may draw from: taken, set back, seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def seed_all(*numbers: int) -> None:
    """Seed python, numpy and torch (all devices) from some numbers: a seed, a rank, a step."""
    import torch

    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def take_randomness() -> dict[str, Any]:
    """The state as tensors, numbers and lists only, so that it can be read back without running code."""
    import torch

    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, state, following = random.getstate()
    taken: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(state), following],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        taken["cuda"] = torch.cuda.get_rng_state_all()
    return taken


def put_randomness(taken: dict[str, Any]) -> None:
    """Set all generators to a state taken before."""
    import torch

    kind, keys, position, has_gauss, gauss = taken["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, state, following = taken["python"]
    random.setstate((version, tuple(state), following))
    torch.set_rng_state(taken["torch"])
    if "cuda" in taken and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(taken["cuda"][: torch.cuda.device_count()])


@contextmanager
def same_randomness() -> Iterator[None]:
    """Whatever is drawn inside is as if it had not been."""
    taken = take_randomness()
    try:
        yield
    finally:
        put_randomness(taken)
