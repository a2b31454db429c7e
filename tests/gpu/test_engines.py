"""Engines side by side, with a GPU for each worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
BENCH = """
bench:
  name: here
  repeats: 1
  threads: 2
  data:
    - {name: made, task: binary, generate: {rows: 4000, columns: 12, informative: 6, noise: 0.1, seed: 1}, target: 0.7}
  engines:
    - {engine: scikit-learn, rounds: 20}
    - {engine: pytorch, name: on-processor, epochs: 4}
    - {engine: pytorch, name: on-gpu, epochs: 4, devices: ["0"]}
"""


def test_a_net_on_a_gpu_beside_the_processor(home: Home, cuda: str) -> None:
    """Both learn the same."""
    assert cuda
    file = home.path / "here.yaml"
    file.write_text(BENCH, encoding="utf-8")
    done = home.tonnage("bench", str(file), "-o", "json")
    found = {one["name"]: one for one in json.loads(done.stdout)["engines"]}
    assert {name: one["reason"] for name, one in found.items()} == dict.fromkeys(found)
    quality = [found[name]["quality"]["value"] for name in ("on-processor", "on-gpu")]
    assert quality[0] == pytest.approx(quality[1], abs=0.03)
    assert [found[name]["devices"] for name in ("on-processor", "on-gpu")] == [[], ["0"]]
