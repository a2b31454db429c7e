"""A mapping given in Python is read as it is: the same workload as its YAML, errors with keys, no text in between."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage.errors import WorkloadError

TRAIN = {
    "kind": "train",
    "model": "bert-base-uncased",
    "data": {"samples": 67_000, "seq_len": {"mean": 48, "max": 128}, "epochs": 3},
    "constraints": {"deadline": "8h", "gpus": ("A100", "H100")},
}
DAY = datetime(2026, 11, 20, tzinfo=UTC)


def test_a_mapping_is_the_workload_of_its_text() -> None:
    """Tuples count as lists, NumPy's numbers as numbers."""
    text = """\
kind: train
model: bert-base-uncased
data: {samples: 67000, seq_len: {mean: 48, max: 128}, epochs: 3}
constraints: {deadline: 8h, gpus: [A100, H100]}
"""
    given = {**TRAIN, "data": {**TRAIN["data"], "samples": np.int64(67_000)}}  # type: ignore[dict-item]
    assert tonnage.load_workload(given, as_of=DAY) == tonnage.load_workload(text, as_of=DAY)


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"model": {1, 2}}, "model", "found a set"),
        ({"constraints": {"gpus": [object()]}}, "constraints.gpus[0]", "found a object"),
        ({"data": {"samples": np.zeros(3)}}, "data.samples", "found a ndarray"),
        ({7: "x"}, None, "found the key 7"),
        ({"kind": "trian"}, "kind", "'trian'"),
        ({"constraints": {"deadlin": "8h"}}, "constraints.deadlin", "unknown key"),
    ],
)
def test_bad_mappings_name_the_key(change: dict[str, object], key: str | None, message: str) -> None:
    """What is wrong is told with its key, without the line of a text that nobody wrote."""
    with pytest.raises(WorkloadError) as caught:
        tonnage.load_workload({**TRAIN, **change}, as_of=DAY)
    assert message in str(caught.value)
    assert caught.value.key == key
    assert caught.value.line is None


def test_paths_and_dates_are_their_text(tmp_path: Path) -> None:
    """A path to a config.json and a date need no quoting."""
    with pytest.raises(WorkloadError, match="no such file"):
        tonnage.load_workload({**TRAIN, "model": tmp_path / "config.json"}, as_of=DAY)
    late = {**TRAIN, "constraints": {"deadline": datetime(2026, 11, 21, 6, tzinfo=UTC)}}
    assert tonnage.load_workload(late, as_of=DAY).constraints.deadline_s == 30 * 3600
