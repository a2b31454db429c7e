"""Bench files: what they mean, and what is wrong with one, by line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import WorkloadError
from tonnage.side_by_side.reading import load_bench, read_bench

EXAMPLES = Path(__file__).parents[2] / "examples" / "bench"
DATA = "data: [{name: small, generate: {rows: 500, columns: 4}}]"
ENGINES = "engines: [{engine: xgboost}]"

WRONG = [  # what stands under `bench:`, the key that is named, the words
    (f"name: a\n  {DATA}\n  engines: []", "bench.engines", "is empty"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: xgbost}}]", "bench.engines[0].engine", "did you mean 'xgboost'"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: xgboost, epochs: 3}}]", "epochs", "no such parameter"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: pytorch, depth: 3}}]", "depth", "no such parameter"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: xgboost, workers: 2}}]", "workers", "runs in one process"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: scikit-learn, devices: [0]}}]", "devices", "on processors alone"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: xgboost, master: spark://a:7077}}]", "master", "runs on no cluster"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: sparkling-gbm, master: yarn}}]", "master", "not an address of a"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: pytorch, workers: 2}}]", "workers", "2 workers share 1 threads"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: xgboost}}, {{engine: xgboost}}]", "engines[1]", "a second entry named"),
    (f"name: a\n  {DATA}\n  engines: [{{engine: pytorch, sharding: zero3}}]", "sharding", "shares out rows alone"),
    (f"name: a\n  {ENGINES}\n  data: [{{name: d}}]", "bench.data[0]", "has no source of rows"),
    (f"name: a\n  {ENGINES}\n  data: [{{name: d, packaged: iris, metric: auc}}]", "metric", "does not fit multiclass"),
    (f"name: a\n  {ENGINES}\n  data: [{{name: d, packaged: wine, target: 1.5}}]", "target", "can never be reached"),
    (f"name: a\n  {ENGINES}\n  data: [{{name: d, file: x.csv}}]", "label", "belongs to `file` or `sql`"),
    (f"name: a\n  {ENGINES}\n  {DATA}\n  price: {{region: us-east-1}}", "bench.price", "not at all"),
    (f"name: a\n  {ENGINES}\n  {DATA}\n  timeout: 30", "bench.timeout", "a bare number has no unit"),
    (f"name: a\n  {ENGINES}\n  {DATA}\n  repeat: 3", "bench.repeat", "repeats"),
]


@pytest.mark.parametrize(("below", "key", "words"), WRONG)
def test_what_is_wrong_is_named_with_its_line(below: str, key: str, words: str) -> None:
    """Every contradiction names file, line and key, and says what to write."""
    with pytest.raises(WorkloadError) as caught:
        read_bench(f"bench:\n  {below}\n", file="b.yaml")
    assert key in (caught.value.key or "")
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.line is not None
    assert caught.value.line > 1


def test_defaults_follow_the_engine() -> None:
    """A net learns in smaller steps than trees; the metric follows the task; engines take the threads of the bench."""
    spec = read_bench(
        f"bench:\n  name: a\n  threads: 2\n  {DATA}\n  engines: [{{engine: xgboost}}, {{engine: pytorch}}]"
    )
    trees, net = spec.engines
    assert (trees.learning_rate, net.learning_rate) == (0.1, 0.001)
    assert (trees.passes, net.passes) == (100, 10)
    assert {trees.threads, net.threads} == {2}
    assert spec.data[0].metric == "auc"


def test_repeats_take_turns() -> None:
    """No engine has all of its repeats at one stretch: drift of the machine meets all alike."""
    spec = read_bench(
        f"bench:\n  name: a\n  repeats: 2\n  {DATA}\n  engines: [{{engine: xgboost}}, {{engine: lightgbm}}]"
    )
    assert [(engine.name, turn) for _, engine, turn in spec.cells()] == [
        ("xgboost", 0), ("lightgbm", 0), ("xgboost", 1), ("lightgbm", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_can_be_read(file: Path) -> None:
    """Every example is a bench."""
    assert load_bench(file).cells()
