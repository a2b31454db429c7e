"""Spot policies on recorded traces, the hazard model fitted without the family it is judged on. Prints Markdown tables.

    TONNAGE_FACTS=FOLDER python benchmarks/spot_policies.py [WINDOWS]

reads FOLDER/spot_traces/*.json (format: docs/spot.md). Work is 48 h, 22.5 h where a record is shorter than two days.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from tonnage.errors import InputError
from tonnage.spot_instances import SpotJob, SpotTrace, fit_hazards, parse_trace, replay_traces
from tonnage.spot_instances.replaying import TraceResult

CHANGEOVERS_H = (0.1, 0.2, 0.5)
FRACTIONS = (0.7, 0.8, 0.9)
RATIO = 3.0
SHOWN = ("greedy", "time-sliced", "uniform-progress", "tonnage", "optimum")


def main() -> None:
    folder = Path(os.environ.get("TONNAGE_FACTS", "")) / "spot_traces"
    traces = [parse_trace(path.read_text(), name=path.stem) for path in sorted(folder.glob("*.json"))]
    if not traces:
        raise InputError(f"no traces in {folder}", hint="set TONNAGE_FACTS to a folder that holds spot_traces/*.json")
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    families = {family: [t for t in traces if t.family == family] for family in sorted({t.family for t in traces})}
    start = perf_counter()
    print("One zone. Cells: " + ", ".join(SHOWN) + "; misses of all policies; tonnage / uniform-progress.\n")
    print("| family (traces) | d h | f=" + " | f=".join(map(str, FRACTIONS)) + " |\n| --- | --- | --- | --- | --- |")
    for changeover_h in CHANGEOVERS_H:
        table = [one_row(families, family, changeover_h, windows) for family in families]
        for family, cells in zip(families, table, strict=True):
            print(f"| {family} ({len(families[family])}) | {changeover_h} | {' | '.join(map(shown, cells))} |")
        mean = " | ".join(map(shown, overall(families, table)))
        print(f"| all but steady spot | {changeover_h} | {mean} |", flush=True)
    together(families, windows)
    print(f"\n{windows} windows a trace, {perf_counter() - start:.0f} s")


Cell = tuple[list[float], int]


def hours_of(traces: Sequence[SpotTrace]) -> float:
    return 22.5 if min(trace.hours for trace in traces) < 60 else 48.0


def one_row(families: dict[str, list[SpotTrace]], family: str, changeover_h: float, windows: int) -> list[Cell]:
    """Mean costs over the traces of a family by fraction of work, the model fitted on the other families."""
    model = fit_hazards([t for name, ts in families.items() if name != family for t in ts], source="other families")
    cells = []
    for fraction in FRACTIONS:
        hours = hours_of(families[family])
        job = SpotJob(work_h=hours, deadline_h=hours / fraction, changeover_h=changeover_h, price_ratio=RATIO)
        found = replay_traces(job, families[family], model, windows=windows, seed=0)
        cells.append(costs(found.traces))
    return cells


def costs(found: Sequence[TraceResult]) -> Cell:
    lines = [{line.policy: line for line in one.results} for one in found]
    means = [float(np.mean([line[name].cost_vs_on_demand for line in lines])) for name in SHOWN]
    return means, sum(one.misses for line in lines for one in line.values())


def steady(cells: list[Cell]) -> bool:
    return all(means[0] < 1 / RATIO + 0.005 for means, _ in cells)


def overall(families: dict[str, list[SpotTrace]], table: list[list[Cell]]) -> list[Cell]:
    """Mean over traces, families whose spot never goes left out."""
    kept = [(len(families[name]), row) for name, row in zip(families, table, strict=True) if not steady(row)]
    total = sum(count for count, _ in kept)
    return [
        (
            [sum(count * row[place][0][one] for count, row in kept) / total for one in range(len(SHOWN))],
            sum(row[place][1] for _, row in kept),
        )
        for place in range(len(FRACTIONS))
    ]


def shown(cell: Cell) -> str:
    means, misses = cell
    ratio = means[SHOWN.index("tonnage")] / means[SHOWN.index("uniform-progress")]
    return f"{' '.join(f'{mean:.3f}'[1:] for mean in means)}; {misses}; {ratio:.3f}"


def together(families: dict[str, list[SpotTrace]], windows: int) -> None:
    print("\nSeveral zones together, f = 0.8.\n\n| family (zones) | d 0.1 h | d 0.5 h |\n| --- | --- | --- |")
    for family, members in families.items():
        if len(members) < 2:
            continue
        model = fit_hazards([t for name, ts in families.items() if name != family for t in ts], source="others")
        cells = []
        for changeover_h in (0.1, 0.5):
            hours = hours_of(members)
            job = SpotJob(work_h=hours, deadline_h=hours / 0.8, changeover_h=changeover_h, price_ratio=RATIO)
            found = replay_traces(job, members, model, windows=windows, seed=0, together=True)
            cells.append(shown(costs(found.traces)))
        print(f"| {family} ({len(members)}) | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
