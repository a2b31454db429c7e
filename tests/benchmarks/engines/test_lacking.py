"""What an engine lacks on this machine is said before it is tried."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tonnage.benchmarks.engines.lacking import lacking
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import EngineSpec


def engine(text: str) -> EngineSpec:
    return read_bench(
        f"bench: {{name: t, threads: 4, data: [{{name: d, generate: {{rows: 600, columns: 5}}}}], engines: [{text}]}}"
    ).engines[0]


class NoDriver(Exception):
    pass


def no_driver() -> None:
    raise NoDriver("library not found")


@pytest.mark.heavy
def test_more_threads_than_cores_are_no_fair_measurement(tmp_path: Path) -> None:
    """The reason names both numbers. A cluster by its address has cores of its own; a study of scaling may go beyond
    those that are here, since it says what sharing takes."""
    assert lacking(engine("{engine: xgboost}"), tmp_path, cores=4) is None
    told = lacking(engine("{engine: xgboost}"), tmp_path, cores=2)
    assert told == "4 threads are stated, 2 cores may be used here: threads: 2"
    scaled = "{engine: pytorch, scaling: {workers: [1, 4]}}"
    assert lacking(engine(scaled), tmp_path, cores=1) is None
    far = engine("{engine: spark-gbt, master: 'spark://head:7077'}")
    (tmp_path / "bench-environments" / "sparkling").mkdir(parents=True)
    (tmp_path / "bench-environments" / "sparkling" / "ready").write_text("")
    assert "threads" not in (lacking(far, tmp_path, cores=1) or "")


def test_devices_that_are_not_here_are_said(tmp_path: Path) -> None:
    """Without a driver nothing is known to be there; of AMD's driver NVML says nothing, so nothing is claimed."""
    one = engine('{engine: xgboost, devices: ["0"]}')
    bare = SimpleNamespace(NVMLError=NoDriver, nvmlInit=no_driver)
    told = lacking(one, tmp_path, cores=4, nvml=bare, rocm=tmp_path / "none")
    assert told == (
        "devices 0 are stated, no GPU can be seen here (NVML: library not found): leave `devices` out"
    )  # fmt: skip
    (tmp_path / "kfd").write_text("")
    assert lacking(one, tmp_path, cores=4, nvml=bare, rocm=tmp_path / "kfd") is None


def test_a_missing_package_comes_first(tmp_path: Path) -> None:
    """Whatever else is amiss: how to get the engine."""
    told = lacking(engine("{engine: h2o-gbm}"), tmp_path, cores=1)
    assert told == "h2o-gbm has no environment: tonnage bench setup h2o"
