"""Environments of engines: Java is checked, what is missing says how to get it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.api.engine_benches import BenchRunOptions, bench_clean, bench_run, bench_setup
from tonnage.benchmarks.engines import environments
from tonnage.benchmarks.engines.worker_process import free_port_pairs
from tonnage.errors import InputError
from tonnage.settings import current_settings


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_setup_without_java_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed before Java has been found."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="apt-get install openjdk-17"):
        bench_setup("h2o")
    assert not environments.environments_folder(current_settings().home).exists()


@pytest.mark.heavy
@pytest.mark.parametrize(("version", "fine"), [("17.0.15", True), ("1.8.0_402", True), ("21.0.2", False)])
def test_java_of_the_wrong_version_is_refused(
    version: str, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME is what counts; H2O runs on 8 to 17."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (environments.java_fault() is None) == fine


def test_an_unknown_environment_is_refused() -> None:
    """The names that there are stand in the hint."""
    with pytest.raises(InputError) as caught:
        bench_setup("spark")
    assert caught.value.hint == "one of h2o, sparkling, ray"


def test_another_version_must_be_a_requirement() -> None:
    """Before anything is made."""
    with pytest.raises(InputError, match=r"'=2\.48' is no requirement"):
        bench_setup("ray", packages=["=2.48"])
    assert not environments.environments_folder(current_settings().home).exists()


def test_clean_of_an_unknown_bench_is_refused() -> None:
    """A name without a folder is a mistake; without a name there may be nothing to do."""
    with pytest.raises(InputError, match="no bench is named 'x'"):
        bench_clean("x")
    assert bench_clean() == ["nothing to clean"]


def test_workers_get_ports_of_their_own() -> None:
    """H2O takes a port and the next one: no two of them meet."""
    ports = free_port_pairs(4)
    taken = {one for port in ports for one in (port, port + 1)}
    assert len(taken) == 8


def test_a_dry_run_writes_no_report(tmp_path: Path) -> None:
    """Neither page nor rows, and it says so; nothing is prepared before."""
    file = tmp_path / "b.yaml"
    file.write_text("bench: {name: t, data: [{name: d, packaged: wine}], engines: [{engine: xgboost}]}")
    dry, out = BenchRunOptions(dry_run=True), str(tmp_path / "out")
    for flag, options in (("--html", replace(dry, html=out)), ("--pdf", replace(dry, pdf=out)),
                          ("--rows", replace(dry, rows=out))):  # fmt: skip
        with pytest.raises(InputError, match=f"{flag} has nothing to write"):
            bench_run(str(file), options)


def test_a_missing_table_is_said_with_the_name_near_it(tmp_path: Path) -> None:
    """The words of the operating system alone do not help."""
    (tmp_path / "rows.csv").write_text("a,b\n1,0\n", encoding="utf-8")
    file = tmp_path / "b.yaml"
    file.write_text("bench: {name: t, data: [{name: d, file: rowz.csv, label: b}], engines: [{engine: xgboost}]}")
    with pytest.raises(InputError, match=r"data set 'd': no such file: .*rowz\.csv$") as caught:
        bench_run(str(file), BenchRunOptions(dry_run=True))
    assert "'rows.csv'" in (caught.value.hint or "")


def test_a_small_java_heap_does_not_stop_the_bench(tmp_path: Path) -> None:
    """It is said in a dry run, beside the predictions; the other engines can run."""
    file = tmp_path / "b.yaml"
    file.write_text("bench: {name: t, data: [{name: d, generate: {rows: 20000, columns: 20}}], engines: "
                    "[{engine: xgboost}, {engine: h2o-gbm, memory_gib: 0.001}]}")  # fmt: skip
    remarks = bench_run(str(file), BenchRunOptions(dry_run=True)).remarks
    assert [one for one in remarks if one.startswith("h2o-gbm may run out of Java heap")]


def test_the_price_of_an_instance_type_is_the_catalogs(tmp_path: Path) -> None:
    """Dollars an hour on demand with their source; a type that is not sold is refused with those like it."""
    file = tmp_path / "b.yaml"
    rest = "data: [{{name: d, packaged: wine}}], engines: [{{engine: xgboost}}]"
    text = "bench: {{name: t, price: {{instance: {}}}, " + rest + "}}"
    file.write_text(text.format("c7g.12xlarge"), encoding="utf-8")
    spec = bench_run(str(file), BenchRunOptions(dry_run=True)).found.spec
    assert spec.usd_per_hour is not None
    assert 0.5 < spec.usd_per_hour < 5
    assert spec.price_note.startswith("aws c7g.12xlarge in ")
    file.write_text(text.format("c7g.12xlrge"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        bench_run(str(file), BenchRunOptions(dry_run=True))
    assert "c7g.12xlarge" in (caught.value.hint or "")
