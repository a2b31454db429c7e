"""The control law beside tuned rivals, on recorded traces and generated bursts. Prints a Markdown table, writes CSV.

    TONNAGE_FACTS=FOLDER python benchmarks/scaling_policies.py [--seed N] [--tune hindsight|past] [--out FILE] [LOAD...]

reads FOLDER/traces/splitwise_{conv,code}.csv (columns: docs/scaling.md). 16 slots a replica, 60 s start-up, a wait of
at most 2 s promised to 99 %. The first half of each load is the past, from which the law learns; the second is judged.
The law's constants were chosen on generated loads of other seeds (3 and 4), an hour of past each.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from tonnage.errors import InputError
from tonnage.scaling.comparing import TUNINGS, PolicyComparison, compare_policies
from tonnage.scaling.load import KINDS, Load, ServiceTimes, generated, load_of_trace, scaled, with_wave
from tonnage.scaling.service import ScaledService
from tonnage.sizing.traces import load_trace

SERVICE: Final = ScaledService(most=40)


def trace(name: str, times: float, *, jitter_s: float = 2.0, wave: bool = False) -> Callable[[int], Load]:
    """A recorded trace, scaled."""

    def read(seed: int) -> Load:
        path = Path(os.environ.get("TONNAGE_FACTS", "")) / "traces" / f"{name}.csv"
        load = scaled(load_of_trace(load_trace(path), ServiceTimes()), times, seed=seed, jitter_s=jitter_s)
        return with_wave(load, seed=seed) if wave else load

    return read


LOADS: Final[dict[str, Callable[[int], Load]]] = {
    "conversation x8, wave": trace("splitwise_conv", 8, wave=True),
    "conversation x8": trace("splitwise_conv", 8),
    "code x24, at once": trace("splitwise_code", 24),
    "code x24, over a minute": trace("splitwise_code", 24, jitter_s=60.0),
    **{kind: (lambda seed, kind=kind: generated(kind, seed=seed)) for kind in KINDS},  # type: ignore[misc]
}


def main() -> None:
    asked = arguments()
    rows = []
    for name in asked.loads or LOADS:
        if name not in LOADS:
            raise InputError(f"'{name}' is no load", hint=f"the loads are {'; '.join(LOADS)}")
        start = perf_counter()
        found = compare_policies(LOADS[name](asked.seed), SERVICE, tuning=asked.tune, seed=asked.seed)
        rows += [row(name, found, place) for place in range(len(found.results))]
        print(line(name, found), flush=True)
        print(f"{name}: {perf_counter() - start:.0f} s", file=sys.stderr)
    if asked.out:
        with Path(asked.out).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("loads", nargs="*", metavar="LOAD")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tune", choices=TUNINGS, default="hindsight")
    parser.add_argument("--out")
    return parser.parse_args()


def line(name: str, found: PolicyComparison) -> str:
    """One row of the table: promises kept in %, replica-hours, setting of each policy; the two ratios."""
    cells = [f"{100 * one.run.kept_fraction:.2f}, {one.run.replica_hours:.2f}" for one in found.results]
    best, ratio, own = found.best_baseline, found.vs_best_baseline, found.own
    ends = f"{best.policy if best else '-'}, {ratio:.3f}" if ratio else "-"
    vs = f"{own.vs_clairvoyant:.2f}" if own else "-"
    return f"| {name} | {found.clairvoyant_replica_hours:.2f} | {' | '.join(cells)} | {ends} | {vs} |"


def row(name: str, found: PolicyComparison, place: int) -> dict[str, object]:
    one = found.results[place]
    return {
        "load": name, "requests": one.run.requests, "tuning": found.tuning, "policy": one.policy,
        "setting": "" if one.setting is None else one.setting, "kept_fraction": round(one.run.kept_fraction, 5),
        "replica_hours": round(one.run.replica_hours, 3), "vs_clairvoyant": round(one.vs_clairvoyant, 3),
        "starts": one.run.starts, "most_replicas": one.run.most_replicas, "wait_p99_s": round(one.run.wait_p99_s, 3),
    }  # fmt: skip


if __name__ == "__main__":
    main()
