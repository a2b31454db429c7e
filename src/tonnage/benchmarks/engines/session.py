"""A bench carried out: every cell that the journal does not hold, in order, each in a process of its own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tonnage.benchmarks.engines.data import SplitRows, prepare_data
from tonnage.benchmarks.engines.ease import ease_of
from tonnage.benchmarks.engines.folder import BenchFolder, remove_tables
from tonnage.benchmarks.engines.lacking import lacking
from tonnage.benchmarks.engines.searching import NO_TRIAL, search_all, searches_of
from tonnage.benchmarks.engines.surroundings import read_surroundings
from tonnage.benchmarks.engines.worker_process import end_marked, remove_scratch, run_cell
from tonnage.benchmarks.machine import gpu_memory_bytes, host_identity, known_gpus
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.device_memory import (
    refuse_what_does_not_fit_on_devices,
    small_heaps,
)
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.power import OpenPower
from tonnage.side_by_side.result import BenchResult, sum_up
from tonnage.side_by_side.searches import EngineSearch, tuned, with_budget
from tonnage.side_by_side.spec import BenchData, BenchSpec, EngineSpec
from tonnage.trials.study import find_optuna
from tonnage.units import from_gib


def read_host(*, gpus: bool = False) -> Host:
    """This machine as the prediction needs it; with its GPUs where they are asked for."""
    here = host_identity()
    return Host(
        processor=here.processor, physical_cores=here.physical_cores, logical_cores=here.logical_cores,
        memory_bytes=from_gib(here.memory_gib), arm=platform.machine().lower() in ("arm64", "aarch64"),
        gpus=known_gpus() if gpus else (),
    )  # fmt: skip


def carry_out(
    spec: BenchSpec,
    folder: BenchFolder,
    home: Path,
    *,
    say: Callable[[str], None],
    open_power: OpenPower | None = None,
) -> BenchResult:
    """Search where the bench asks for it, then run what the journal lacks; cells that failed before are tried again.
    The result over all cells.

    A worker that fails makes a failed cell, and the rest goes on. KeyboardInterrupt ends the worker under way and
    passes; finished cells stay in the journal. `open_power`: who reads clocks and energy beside a cell. MissingExtra
    where a search is asked for and Optuna is not installed.
    """
    if spec.search is not None:
        find_optuna()
    finished = {cell.key for cell in folder.cells() if cell.reason is None}
    lacks = {engine.name: lacking(engine, home) for engine in spec.engines}
    asked, tables = spec.cells(), prepare_all(spec, folder)
    for warning in heap_warnings(spec, tables):
        say(warning)
    folder.enter(read_surroundings(datetime.now(UTC)), home)
    search_all(spec, folder, home, tables=tables, lacking=lacks, say=say)
    searches = {(one.data, one.engine): one for one in searches_of(spec, folder)}
    for number, (data, engine, turn) in enumerate(asked, start=1):
        if (data.name, engine.name, turn) in finished:
            continue
        lack = lacks[engine.name] or _unsearched(searches.get((data.name, engine.name)))
        if lack is not None:
            cell = BenchCell(data=data.name, engine=engine.name, turn=turn, reason=lack)
        else:
            cell = _measured(data, engine, turn, searches.get((data.name, engine.name)), table=tables[data.name].folder,
                             spec=spec, bench=folder.path, home=home, open_power=open_power)  # fmt: skip
        folder.append(cell)
        say(f"{number}/{len(asked)} {_line(cell, data.metric)}")
    return result_of(spec, folder, tables, home)


def _unsearched(search: EngineSearch | None) -> str | None:
    """Why there are no settings to measure with."""
    if search is None or search.best is not None:
        return None
    reasons = [one.reason for one in search.trials if one.reason is not None]
    return f"{NO_TRIAL}: {reasons[-1]}" if reasons else NO_TRIAL


def _measured(
    data: BenchData,
    engine: EngineSpec,
    turn: int,
    search: EngineSearch | None,
    *,
    table: Path,
    spec: BenchSpec,
    bench: Path,
    home: Path,
    open_power: OpenPower | None,
) -> BenchCell:
    """The cell, with the best settings of the search where there was one."""
    settings = None if search is None or search.best is None else dict(search.best.settings)
    engine = with_budget(tuned(engine, settings or {}), spec)
    cell = run_cell(data, engine, turn, table=table, seed=spec.seed, timeout_s=spec.timeout_s,
                    bench=bench, home=home, open_power=open_power)  # fmt: skip
    return replace(cell, settings=settings)


def prepare_all(
    spec: BenchSpec, folder: BenchFolder, *, device_memory: Mapping[str, float] | None = None
) -> dict[str, SplitRows]:
    """Every data set on the disk. InputError for one that cannot be used, or has other rows than finished cells had,
    before any engine starts.

    `device_memory`: bytes of each GPU by name, else as the driver tells. Generated tables are refused before they are
    drawn.
    """
    free = float(psutil.virtual_memory().available)
    if device_memory is None:
        device_memory = gpu_memory_bytes({name for engine in spec.engines for name in engine.devices})
    found = {}
    for one in spec.data:
        if one.generated is not None:
            shape = one.generated
            refuse_what_does_not_fit_on_devices(spec, one, shape.rows, shape.columns, device_memory)
        split = prepare_data(spec, one, folder.path / "data" / one.name, memory_bytes=free)
        rows = sum(split.rows.values())
        refuse_what_does_not_fit_on_devices(spec, one, rows, split.columns, device_memory, split.facts)
        found[one.name] = split
    folder.hold_to({name: split.digests for name, split in found.items()})
    return found


def heap_warnings(spec: BenchSpec, tables: Mapping[str, SplitRows]) -> tuple[str, ...]:
    """Engines whose Java heaps are below what H2O advises for the prepared tables."""
    return tuple(
        line for one in spec.data
        for line in small_heaps(spec, one, sum(tables[one.name].rows.values()), tables[one.name].columns)
    )  # fmt: skip


def result_of(spec: BenchSpec, folder: BenchFolder, tables: dict[str, SplitRows], home: Path) -> BenchResult:
    """What the journal holds, summed up, with what `home` knows of the engines: rows of earlier benches, set-ups."""
    cells, host = folder.cells(), read_host(gpus=any(engine.devices for engine in spec.engines))
    facts = {name: one.facts for name, one in tables.items()}
    return BenchResult(
        spec=spec, host=host, cells=tuple(cells), cells_asked=len(spec.cells()),
        rows=sum_up(spec, cells, host, {name: one.columns for name, one in tables.items()}, facts=facts,
                    fit=folder.corrections(home), train_rows={name: one.rows["train"] for name, one in tables.items()}),
        facts=facts, sessions=tuple(folder.sessions()), searches=searches_of(spec, folder),
        ease={engine.name: ease_of(engine.engine, home) for engine in spec.engines},
        digests={name: one.digests for name, one in tables.items()},
        shapes={name: (one.rows["train"], one.columns) for name, one in tables.items()},
    )  # fmt: skip


def clean_bench(folder: BenchFolder) -> tuple[int, int]:
    """End what a killed bench left and remove its tables and workers' folders; (processes ended, bytes freed).

    The journal and the report stay. InputError where the bench runs.
    """
    with folder.held():
        ended = end_marked(folder.path)
        remove_scratch(folder.path)
        freed = 0
        for name in ("cells", "data"):
            place = folder.path / name
            freed += sum(one.stat().st_size for one in place.rglob("*") if one.is_file())
            remove_tables(place)
    return ended, freed


def _line(cell: BenchCell, metric: str) -> str:
    head = f"{cell.data} {cell.engine} #{cell.turn + 1}"
    if cell.reason is not None:
        return f"{head}: failed: {cell.reason}"
    return f"{head}: {cell.work_s:.2f} s, {metric} {cell.quality:.4f}"
