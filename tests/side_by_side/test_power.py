"""Clocks, power and energy of a cell: from readings, through the journal, to the page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tonnage.monitoring.machine_health import DevicePower
from tonnage.reports.engine_bench import engine_bench_report
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.cells import BenchCell, read_cell
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.power import CellPower, GpuReading, PowerReading, power_of
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, sum_up


def course(*gpus: GpuReading, energies: tuple[float, ...] = (0.0, 10.0, 40.0, 70.0, 80.0)) -> list[PowerReading]:
    return [
        PowerReading(at_s=float(at), cpu_clock_hz=2e9 + at * 1e8, cpu_energy_j=energy, gpus=gpus)
        for at, energy in enumerate(energies)
    ]


def test_energy_is_that_of_the_work_alone() -> None:
    """Between readings in proportion: from 0.5 s (5 J) to 3.5 s (75 J)."""
    found = power_of(course(), 0.5, 3.5)
    assert found.cpu_energy_j == pytest.approx(70.0)
    assert found.cpu_power_w == pytest.approx(70.0 / 3.0)
    assert found.cpu_clock_hz == pytest.approx(2.2e9)
    assert (found.gpu_energy_j, found.gpu_clock_hz, found.throttled_by) == (None, None, None)


def test_power_stands_in_for_a_counter() -> None:
    """A GPU without a counter: its power over time; two of them are summed; one that tells nothing makes it unknown."""
    steady, silent = GpuReading(clock_hz=1e9, power_w=100.0, throttled_by=""), GpuReading(clock_hz=1e9)
    found = power_of(course(steady, steady), 0.5, 3.5)
    assert found.gpu_energy_j == pytest.approx(600.0)
    assert found.gpu_power_w == pytest.approx(200.0)
    assert found.throttled_by == ""
    assert power_of(course(steady, silent), 0.5, 3.5).gpu_energy_j is None
    held = power_of(course(replace(steady, throttled_by="power")), 0.5, 3.5)
    assert held.throttled_by == "power"


@pytest.mark.parametrize(
    ("energies", "begun", "ended"),
    [((0.0, 10.0, 40.0, 5.0, 9.0), 0.5, 3.5), ((0.0, 1.0, 2.0, 3.0, 4.0), 0.5, 9.0), ((0.0, 1.0, 2.0), 0.9, 1.1)],
    ids=["counter began anew", "not read after the end", "too short"],
)
def test_what_was_not_read_is_unknown(energies: tuple[float, ...], begun: float, ended: float) -> None:
    assert power_of(course(energies=energies), begun, ended).cpu_energy_j is None


def test_the_machine_is_read_without_a_gpu() -> None:
    """What the system tells, and nothing for what it does not."""
    source = DevicePower((), health=lambda: {"cpu_clock_hz": 3e9})
    one = source.read()
    source.close()
    assert (one.cpu_clock_hz, one.cpu_energy_j, one.gpus) == (3e9, None, ())


def test_page_and_journal_carry_them() -> None:
    """A cell comes back from its line; a figure that one repeat lacks is unknown over all."""
    spec = read_bench("bench: {name: p, repeats: 2, engines: [{engine: xgboost}], data: [{name: d, packaged: digits}]}")
    power = CellPower(cpu_clock_hz=2.5e9, cpu_power_w=50.0, cpu_energy_j=200.0)
    one = BenchCell(data="d", engine="xgboost", turn=0, prepare_s=1.0, train_s=3.0, train_rows=70, power=power)
    assert read_cell(json.loads(json.dumps(asdict(one)))) == one
    two = replace(one, turn=1, power=CellPower(cpu_clock_hz=2.5e9))
    host = Host(processor="test", physical_cores=1, logical_cores=1, memory_bytes=2**30, arm=False)
    found = BenchResult(spec=spec, host=host, rows=sum_up(spec, [one, two], host, {"d": 2}), cells=(one, two),
                        cells_asked=2, digests={"d": {}}, shapes={"d": (70, 2)})  # fmt: skip
    report = engine_bench_report(found)
    (engine,) = report.document()["engines"]
    assert engine["cpu_clock_hz"]["value"] == pytest.approx(2.5e9)
    assert engine["cpu_energy_j"] is None
    assert "2,500" in render_report(report, "table")
