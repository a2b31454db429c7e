"""`tonnage bench places`: the same run on this machine and, over a real SSH server, at a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs import RunSpec
from tonnage.runs.spec import DataSource, DataSpec, LaunchSpec, TabularSpec, TrainingSpec, dump_spec


def train_really(desk: Any, name: str) -> str:
    """The file of a real training: a tiny perceptron over a tiny table."""
    del desk.environ["TONNAGE_WORKER"]
    desk.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    (desk.home / "rows.csv").write_text("a,b\n" + "".join(f"{at % 7},{at % 2}\n" for at in range(200)))
    data = DataSpec(
        train=DataSource(location=str(desk.home / "rows.csv"), format="csv"), columns=(("label", "b"),)
    )  # fmt: skip
    path = desk.home / f"{name}.json"
    training = TrainingSpec(max_steps=60, global_batch=16, log_every_steps=5, precision="fp32")
    tabular = TabularSpec(objective="classification", hidden_layers=(16,))
    launch = LaunchSpec(device="cpu", threads=1)
    path.write_text(
        dump_spec(RunSpec(name=name, task="mlp", data=data, training=training, tabular=tabular, launch=launch))
    )
    return str(path)


@pytest.mark.slow
def test_two_places_are_compared(box: Callable[..., str], desk_at: Callable[..., Any], tmp_path: Path) -> None:
    """Each place in every turn, with real trainings; this machine differs from itself by no factor of five."""
    desk = desk_at(tmp_path / "home", box(tmp_path / "there"))
    file = train_really(desk, "same")
    document = json.loads(
        desk.tonnage("bench", "places", file, "--on", "local", "--on", "box", "--repeats", "2", "-o", "json")
    )
    assert [(one["place"], one["turn"], one["reason"]) for one in document["cells"]] == [
        ("local", 0, None), ("box", 0, None), ("local", 1, None), ("box", 1, None),
    ]  # fmt: skip
    rates = [one["samples_per_s"] for one in document["cells"]]
    assert 0 < max(rates) < 5 * min(rates)
    (difference,) = document["differences"]
    assert (difference["one"], difference["other"]) == ("local", "box")
    assert 0 <= difference["within_limit_confidence"] <= 1


@pytest.mark.slow
def test_a_place_that_cannot_carry_it_is_a_failed_cell(
    box: Callable[..., str], desk_at: Callable[..., Any], tmp_path: Path
) -> None:
    """Its port is closed: two runs here count, and the report says why there are none there; exit 0."""
    desk = desk_at(tmp_path / "home", box(tmp_path / "there", port=1))
    file = train_really(desk, "half")
    said = desk.tonnage("bench", "places", file, "--on", "local", "--on", "box", "--repeats", "2")
    assert "box: 2 failed:" in said
    assert "'bax'" in desk.tonnage("bench", "places", file, "--on", "local", "--on", "bax", code=2)
