"""What an engine asks for before it runs: set-up and adapter."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tonnage.benchmarks.engines.ease import adapter_lines, ease_of
from tonnage.reports.bench_search import ease_blocks, ease_document
from tonnage.reports.blocks import Table
from tonnage.reports.wording import UNKNOWN
from tonnage.side_by_side.spec import EngineKind


@pytest.mark.parametrize("engine", get_args(EngineKind))
def test_every_engine_has_an_adapter(engine: EngineKind) -> None:
    assert adapter_lines(engine) > 10


def test_shared_modules_count() -> None:
    """PyTorch on Ray takes the network of `pytorch` and what Ray's engines share."""
    assert adapter_lines("ray-pytorch") > adapter_lines("pytorch") + adapter_lines("xgboost")
    assert adapter_lines("h2o-gbm") == adapter_lines("h2o-xgboost")


def test_seconds_of_a_set_up_are_those_that_were_recorded(tmp_path: Path) -> None:
    """An environment of before they were recorded, and one that is not there, have none."""
    for kind, text in (("ray", "96.9\n"), ("h2o", "")):
        place = tmp_path / "bench-environments" / kind
        place.mkdir(parents=True)
        (place / "ready").write_text(text, encoding="utf-8")
    found = {name: ease_of(name, tmp_path) for name in ("ray-xgboost", "h2o-gbm", "spark-gbt", "xgboost")}  # type: ignore[arg-type]
    assert [one.setup_s for one in found.values()] == [96.9, None, None, None]
    assert [one.environment for one in found.values()] == ["ray", "h2o", "sparkling", None]
    _, table, _ = ease_blocks(found)
    assert isinstance(table, Table)
    assert [row[1:3] for row in table.rows] == [
        ("ray", "96.9"), ("h2o", UNKNOWN), ("sparkling", UNKNOWN), ("tonnage's", UNKNOWN),
    ]  # fmt: skip
    assert ease_document(found)[0]["setup_s"] == 96.9
    assert list(ease_blocks({})) == []
