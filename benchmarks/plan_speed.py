"""How long a full plan takes: the whole process, and in process the built-in catalog and 100,000 offers. Prints seconds
and peak memory.

Run with `make bench`; `--whole` prints the processes alone. Figures held to: 0.6 s for `tonnage plan FILE` as a process
on two idle cores, 0.5 s in process for the whole catalog with all parallel layouts, 5 s and 500 MiB for 100,000 offers,
growing linearly. Where `$TONNAGE_RIVALS/skypilot` is an environment with SkyPilot, its optimizer gets
the AWS offers of the catalog in the same run.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import get_args

from tonnage.catalog import Catalog, Purchase, load_catalog
from tonnage.planning import make_plan
from tonnage.workload import load_workload
from tonnage.workload.jobs import Workload

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.tonnage.yaml"))
AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


def many_offers(catalog: Catalog, count: int) -> Catalog:
    """The catalog's offers over and over in made-up regions, each a little dearer, `count` in all."""
    offers = []
    while len(offers) < count:
        turn = len(offers) // len(catalog.offers)
        factor = Decimal(1) + Decimal(turn) / Decimal(1000)
        offers += [
            replace(o, region=f"{o.region}-{turn}", usd_per_instance_hour=o.usd_per_instance_hour * factor)
            for o in catalog.offers
        ]
    return replace(catalog, offers=tuple(offers[:count]))


def whole_process(path: Path, runs: int = 5) -> dict[str, float]:
    """Medians of `tonnage plan FILE` over `runs` processes, after one that warms the compiled modules: seconds on the
    clock, and of the processor (which other work on the machine moves less)."""
    command = [sys.executable, "-m", "tonnage", "plan", str(path), "--as-of", f"{AS_OF:%Y-%m-%d}"]
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    walls, processors = [], []
    for _ in range(runs + 1):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
        subprocess.run(command, env=keeping, stdout=subprocess.DEVNULL, check=True)
        walls.append(perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall_s": round(median(walls[1:]), 3), "processor_s": round(median(processors[1:]), 3)}


def every_process() -> dict[str, dict[str, float]]:
    """The whole-process figures of every example, printed as they come."""
    found = {}
    for path in EXAMPLES:
        found[path.name.removesuffix(".tonnage.yaml")] = one = whole_process(path)
        print(f"tonnage plan {path.name}: {one['wall_s']:.2f} s, {one['processor_s']:.2f} s of processor (median of 5)")
    return found


def main() -> None:
    processes = every_process()
    if "--whole" in sys.argv:
        return
    start = perf_counter()
    catalog = load_catalog()
    print(f"load catalog: {perf_counter() - start:.3f} s, {len(catalog.offers)} offers")
    figures: dict[str, float] = {}
    for path in EXAMPLES:
        workload = load_workload(path, as_of=AS_OF)
        best = min(_seconds(lambda w=workload: make_plan(w, catalog)) for _ in range(3))
        figures[path.name.removesuffix(".tonnage.yaml")] = round(best, 3)
        print(f"plan {path.name}: {best:.3f} s (best of 3)")
    workload = load_workload(EXAMPLES[1], as_of=AS_OF)
    for count in (12_500, 25_000, 50_000):
        some = many_offers(catalog, count)
        print(f"plan over {count:,} offers: {_seconds(lambda c=some: make_plan(workload, c)):.2f} s")
    every = replace(workload, buy=replace(workload.buy, purchases=get_args(Purchase), reserved_utilization=0.8))
    best = min(_seconds(lambda: make_plan(every, catalog)) for _ in range(3))
    figures["every-purchase"] = round(best, 3)
    print(f"plan {EXAMPLES[1].name} with every purchase mode and platform: {best:.3f} s (best of 3)")
    large = many_offers(catalog, 100_000)
    seconds = _seconds(lambda: make_plan(workload, large))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"plan over {len(large.offers):,} offers: {seconds:.2f} s, peak memory of this process {peak_mib:.0f} MiB")
    beside_skypilot(workload, catalog)
    if "--json" in sys.argv:
        print(
            json.dumps(
                {
                    "process": processes,
                    "plan_s": figures,
                    "plan_100k_offers_s": round(seconds, 3),
                    "peak_mib": round(peak_mib),
                }
            )
        )


def beside_skypilot(workload: Workload, catalog: Catalog) -> None:
    """Both planners over the AWS offers of `catalog`: seconds, and what each would buy."""
    aws = replace(catalog, offers=tuple(one for one in catalog.offers if one.provider == "aws"))
    own = _seconds(lambda: make_plan(workload, aws))
    best = make_plan(workload, aws).best
    bought = "nothing" if best is None else f"{best.instance_type} {best.purchase} {best.region}"
    print(f"over {len(aws.offers):,} AWS offers: Tonnage {own:.3f} s, {bought}")
    python = Path(os.environ.get("TONNAGE_RIVALS", "")) / "skypilot" / "bin" / "python"
    if not python.is_file():
        print("  SkyPilot: not measured (no environment named by TONNAGE_RIVALS)")
        return
    script = Path(__file__).parent / "rivals" / "skypilot_optimizer.py"
    done = subprocess.run(
        [python, script], input=json.dumps({"offers": _as_skypilot(aws)}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"  SkyPilot: failed: {done.stderr.strip().splitlines()[-1]}")
        return
    said = json.loads(done.stdout)
    print(
        f"  SkyPilot {said['version']}: {said['first_s']:.3f} s, again {said['again_s']:.3f} s "
        f"({said['again_s'] / own:.1f}x), {said['chosen']} (for one hour of work on whichever machine)"
    )


def _as_skypilot(catalog: Catalog) -> list[list[str | float | None]]:
    """One row per machine and region, with both prices, as SkyPilot's list has them."""
    prices: dict[tuple[str, str], dict[str, float]] = {}
    for one in catalog.offers:
        prices.setdefault((one.instance_type, one.region), {})[one.purchase] = float(one.usd_per_instance_hour)
    machines = {one.name: one for one in catalog.instance_types if one.provider == "aws"}
    rows: list[list[str | float | None]] = []
    for (name, region), price in prices.items():
        machine = machines[name]
        if "on_demand" not in price or (machine.accelerator and machine.accelerator_count < 1):
            continue
        count = machine.accelerator_count if machine.accelerator else None
        rows.append(
            [name, machine.accelerator or "", count, machine.vcpus, machine.memory_gib, "", price["on_demand"],
             price.get("spot"), region, f"{region}a", machine.cpu_arch]
        )  # fmt: skip
    return rows


def _seconds(call) -> float:  # type: ignore[no-untyped-def]
    start = perf_counter()
    call()
    return perf_counter() - start


if __name__ == "__main__":
    main()
