"""DDP looks for unused parameters where a model has some, and nowhere else."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train`")

from tonnage.recipes.engine import must_look_for_unused  # noqa: E402


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two layers; `used` of them take part."""

    def __init__(self, used: int, **config: Any) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
        self.used, self.config = used, SimpleNamespace(**config)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.passes += 1
        for layer in self.layers[: self.used]:
            x = layer(x)
        return SimpleNamespace(loss=torch.nn.functional.dropout(x).sum())


def look(model: Any, *, world: int = 2, sharded: bool = False, fails: Exception | None = None) -> bool:
    def collate(_: Any) -> dict[str, Any]:
        if fails is not None:
            raise fails
        return {"x": torch.ones(1, 3)}

    team = SimpleNamespace(world=world, largest=lambda own: own)
    accelerator = SimpleNamespace(device="cpu", autocast=nullcontext)
    machine: Any = SimpleNamespace(team=team, sharded=sharded, accelerator=accelerator, device="cpu")
    prepared: Any = SimpleNamespace(train=[0], collate=collate)
    return must_look_for_unused(model, prepared, machine)


@pytest.mark.parametrize(("used", "expected"), [(1, True), (2, False)])
def test_one_sample_tells(used: int, expected: bool) -> None:
    """Afterwards no gradient is left, no buffer changed, and the next random number is the one it would have been."""
    model = Model(used)
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert look(model) is expected
    assert torch.equal(torch.rand(1), drawn)
    assert float(model.passes) == 0
    assert all(one.grad is None for one in model.parameters())


def test_what_a_frozen_layer_lacks_is_not_looked_for() -> None:
    """Only what is trained has to have a gradient."""
    model = Model(1)
    model.layers[1].requires_grad_(False)
    assert look(model) is False


def test_experts_change_from_step_to_step() -> None:
    """A mixture, or dropped layers, must always be looked through; one process, or FSDP, never."""
    assert look(Model(2, num_local_experts=4)) is True
    assert look(Model(2, layerdrop=0.1)) is True
    assert look(Model(1), world=1) is False
    assert look(Model(1), sharded=True) is False


def test_memory_that_runs_out_is_left_to_the_preflight_step() -> None:
    """It says what does not fit; any other error is raised."""
    assert look(Model(1), fails=torch.OutOfMemoryError("CUDA out of memory (injected by a test)")) is False
    with pytest.raises(RuntimeError, match="odd"):
        look(Model(1), fails=RuntimeError("odd"))


class Indexed(Model):
    """Looks rows up by a buffer, as BERT does its token types: backward needs the buffer as the pass saw it."""

    def __init__(self) -> None:
        super().__init__(2)
        self.table = torch.nn.Embedding(4, 3)
        self.register_buffer("types", torch.zeros((1, 1), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        return super().forward(x + self.table(self.types)[0])


def test_buffers_that_the_graph_keeps_stay_until_backward_is_done() -> None:
    """A model that looks up by a buffer is looked through without an error."""
    assert look(Indexed()) is False
