"""A data set that a GPU cannot hold is refused before anything runs, with the number of rows that fits."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from tonnage.benchmarks.machine import gpu_memory_bytes
from tonnage.errors import InputError
from tonnage.side_by_side.device_memory import (
    device_bytes,
    refuse_what_does_not_fit_on_devices,
    small_heaps,
)
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import BenchSpec
from tonnage.units import from_gib, to_gib


def bench(engine: str, rows: int = 100_000_000) -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  threads: 2\n  data: [{{name: d, generate: {{rows: {rows}, columns: 100}}}}]\n"
        f"  engines: [{engine}]\n"
    )


@pytest.mark.parametrize("engine", ["xgboost", "pytorch"])
def test_too_many_rows_are_refused_with_those_that_fit(engine: str) -> None:
    """That many fit, and one more does not."""
    spec = bench(f'{{engine: {engine}, devices: ["0"]}}')
    with pytest.raises(InputError, match=f"needs about .* GiB on each GPU of {engine}, 4 GiB are there") as caught:
        refuse_what_does_not_fit_on_devices(spec, spec.data[0], 100_000_000, 100, {"0": from_gib(4)})
    fits = int(caught.value.hint.split()[1]) if caught.value.hint else 0
    assert fits > 1_000_000
    assert device_bytes(spec, spec.engines[0], fits, 100, None) <= from_gib(4)
    assert device_bytes(spec, spec.engines[0], fits + 10, 100, None) > from_gib(4)
    refuse_what_does_not_fit_on_devices(spec, spec.data[0], fits, 100, {"0": from_gib(4)})


def test_workers_share_the_rows_and_the_smallest_device_counts() -> None:
    """Two processes hold half the training rows each; each scores all rows of a part."""
    one, two = bench('{engine: pytorch, devices: ["0"]}'), bench('{engine: pytorch, workers: 2, devices: ["0", "1"]}')
    alone, shared = (to_gib(device_bytes(spec, spec.engines[0], 100_000_000, 100, None)) for spec in (one, two))
    assert 0.5 * alone < shared < 0.7 * alone
    with pytest.raises(InputError, match="16 GiB are there"):
        refuse_what_does_not_fit_on_devices(two, two.data[0], 100_000_000, 100, {"0": from_gib(80), "1": from_gib(16)})


def test_an_unknown_device_refuses_nothing() -> None:
    """And an engine without devices is not asked about them; a device too small for the engine itself says so."""
    for engine in ('{engine: xgboost, devices: ["7"]}', "{engine: xgboost}"):
        spec = bench(engine)
        refuse_what_does_not_fit_on_devices(spec, spec.data[0], 100_000_000, 100, {"0": 1.0})
    spec = bench('{engine: xgboost, devices: ["0"]}')
    with pytest.raises(InputError) as caught:
        refuse_what_does_not_fit_on_devices(spec, spec.data[0], 1000, 100, {"0": from_gib(0.1)})
    assert "another device" in (caught.value.hint or "")


def test_memory_of_devices_is_what_the_driver_tells() -> None:
    """By the names of the bench file; one that is not there has none, and neither has a machine without a driver."""
    kinds = dict.fromkeys(("NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_FunctionNotFound",
                           "NVMLError_InvalidArgument"), ZeroDivisionError)  # fmt: skip
    nvml = SimpleNamespace(
        NVMLError=RuntimeError, **kinds, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetMigMode=lambda _: (0, 0),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=(handle + 1) * 2**30),
    )  # fmt: skip
    assert gpu_memory_bytes(["0", "1", "5"], nvml) == {"0": 2.0**30, "1": 2.0 * 2**30}

    def fails() -> None:
        raise RuntimeError("no driver")

    nvml.nvmlInit = fails
    assert gpu_memory_bytes(["0"], nvml) == {}


@pytest.mark.parametrize("engine", ["h2o-gbm", "sparkling-gbm"])
def test_java_heaps_below_the_advice_are_a_warning(engine: str) -> None:
    """With the rows or the heap that follow it; Sparkling Water's nodes hold the rows once more than H2O's."""
    workers = 1 if engine == "h2o-gbm" else 2
    spec = bench(f"{{engine: {engine}, workers: {workers}, memory_gib: 1}}")
    (said,) = small_heaps(spec, spec.data[0], 100_000_000, 100)
    assert said.startswith(f"{engine} may run out of Java heap")
    found = re.search(r"rows: (\d+), or memory_gib: ([\d.]+)$", said)
    assert found is not None
    fits, gib = int(found[1]), float(found[2])
    assert list(small_heaps(spec, spec.data[0], fits, 100)) == []
    assert len(list(small_heaps(spec, spec.data[0], fits + 10, 100))) == 1
    assert fits == int(from_gib(workers) / (4 * 100 * (4 if workers == 1 else 5)))
    enough = bench(f"{{engine: {engine}, workers: {workers}, memory_gib: {gib}}}")
    assert list(small_heaps(enough, enough.data[0], 100_000_000, 100)) == []


def test_what_has_no_heap_of_tables_is_not_warned_of() -> None:
    """Spark's own models go over the disk, the others have no Java."""
    for engine in ("spark-gbt", "xgboost"):
        spec = bench(f"{{engine: {engine}, memory_gib: 0.5}}")
        assert list(small_heaps(spec, spec.data[0], 100_000_000, 100)) == []
