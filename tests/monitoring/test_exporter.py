"""The page for Prometheus: names, units, and what happens where its port is taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tonnage.monitoring.exporter import TRIES, Exporter
from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.folder import append_line, append_values
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec
from tonnage.runs.tail import newest_values

parser = pytest.importorskip("prometheus_client.parser")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "one")
    data = DataSpec(train=DataSource(location="rows.jsonl", format="jsonl"))
    run.create(RunSpec(name="one", task="causal-lm", model="gpt2", data=data, guard=GuardSpec(usd_per_hour=3.6)))
    return run


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def scrape(port: int) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_figures_are_those_of_the_folder(folder: RunFolder) -> None:
    """Newest step, memory, GPU, state, spend; each scrape reads anew."""
    folder.record(EventKind.STARTED, who="supervisor", attempt=1)
    exporter = Exporter(folder, 0)
    port = exporter.start()
    assert port
    assert "tonnage_run_step" not in scrape(port)
    append_values(folder.metrics_file, {"step": 10, "loss": 0.7, "step_s": 0.25, "data_wait_s": 0.01})
    gpu = {"index": 0, "name": "H100", "utilization_fraction": 0.9, "power_w": 650.0, "energy_j": 5000.0}
    append_values(folder.samples_file, {"host_rss_bytes": 1 << 30, "cpu_fraction": 0.5, "gpus": [gpu]})
    folder.record(EventKind.TRAINING, who="rank0", step=1)
    found = scrape(port)
    exporter.stop()
    run, on_gpu = (("run", "one"),), (("gpu", "0"), ("name", "H100"), ("run", "one"))
    assert found["tonnage_run_step"] == {run: 10}
    assert found["tonnage_run_step_seconds"] == {run: 0.25}
    assert found["tonnage_run_resident_memory_bytes"] == {run: 1 << 30}
    assert found["tonnage_gpu_power_watts"] == {on_gpu: 650}
    assert found["tonnage_gpu_energy_joules_total"] == {on_gpu: 5000}
    assert found["tonnage_run_state"][(("run", "one"), ("state", "running"))] == 1
    assert sum(found["tonnage_run_state"].values()) == 1
    assert found["tonnage_run_spend_usd_total"][run] >= 0


def test_names_are_in_base_units(folder: RunFolder) -> None:
    """No name ends in a scaled unit, and every one begins with the program's."""
    exporter = Exporter(folder, 0)
    append_values(folder.metrics_file, {"step": 10, "step_s": 0.25})
    names = scrape(exporter.start() or 0)
    exporter.stop()
    assert all(name.startswith("tonnage_") for name in names)
    assert not [name for name in names if name.endswith(("_ms", "_gib", "_percent", "_mb", "_kwh", "_s"))]


def test_a_taken_port_is_passed_over(folder: RunFolder, taken: int) -> None:
    """The next free one is served, and the journal says which."""
    exporter = Exporter(folder, taken)
    port = exporter.start()
    exporter.stop()
    assert taken < (port or 0) < taken + TRIES
    (event,) = folder.events()
    assert (event.kind, event.fields["wanted"], event.fields["port"]) == (EventKind.EXPORTING, taken, port)


def test_no_free_port_is_no_error(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """Nothing is served; the journal says so; stopping what never started is fine."""
    monkeypatch.setattr("tonnage.monitoring.exporter.TRIES", 1)
    exporter = Exporter(folder, taken)
    assert exporter.start() is None
    exporter.stop()
    (event,) = folder.events()
    assert event.fields["port"] is None
    assert "in use" in event.fields["message"]


def test_a_cut_line_is_passed_over(folder: RunFolder) -> None:
    """The newest whole line counts; nothing is there before the first."""
    assert newest_values(folder.metrics_file) == {}
    append_values(folder.metrics_file, {"step": 1})
    with folder.metrics_file.open("a") as file:
        file.write('{"step": 2')
    assert newest_values(folder.metrics_file) == {"step": 1}
    append_line(folder.metrics_file, '{"step": 3}')
    assert newest_values(folder.metrics_file) == {"step": 3}
