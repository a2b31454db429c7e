"""`tonnage optimise --gpu --measure`: training switches timed on the GPU, beside what is predicted of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
TIMED = ("tf32", "bf16", "torch.compile", "CUDA graphs")
LEFT_OUT = ("fused kernels", "data loader and pinned memory")


def test_switches_are_timed_on_the_gpu(home: Home, cuda: str) -> None:
    """Number formats, compiled and captured steps each have a rate; what no run can be timed with has a reason."""
    from tonnage.catalog.aliases import devices_called
    from tonnage.runners.machine import look_at_machine

    name = look_at_machine().gpus[0].name
    known = devices_called(name, vocabulary="nvidia-smi")
    if not known:
        pytest.skip(f"the catalog does not know {name}")
    file = home.starter("causal-lm", train={"precision": "fp32"}, run={"device": cuda})
    only = [word for one in (*TIMED, *LEFT_OUT) for word in ("--only", one)]
    done = home.tonnage("optimise", str(file), "--gpu", known[0], "--measure", "--repeats", "2", "--steps", "10", *only,
                        "-o", "json")  # fmt: skip
    document = json.loads(done.stdout)
    found = {one["switch"]: one for one in document["switches"]}
    assert document["as_stated"]["measured_per_s"]["value"] > 0
    for one in TIMED:
        assert found[one]["why_not_measured"] is None, found[one]
        assert 0.05 < found[one]["measured_gain"] < 20
        assert found[one]["turns"] == 2
    for one in LEFT_OUT:
        assert found[one]["measured_gain"] is None
        assert "`tonnage run`" in found[one]["why_not_measured"]
