"""How long a full plan takes in process: the built-in catalog, and 100,000 offers. Prints seconds and peak memory.

Run with `make bench`. Figures held to: 0.5 s for the whole catalog with all parallel layouts, 5 s and 500 MiB for
100,000 offers.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import get_args

from tonnage.catalog import Catalog, Purchase, load_catalog
from tonnage.planning import make_plan
from tonnage.workload import load_workload

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


def main() -> None:
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
    every = replace(workload, buy=replace(workload.buy, purchases=get_args(Purchase), reserved_utilization=0.8))
    best = min(_seconds(lambda: make_plan(every, catalog)) for _ in range(3))
    figures["every-purchase"] = round(best, 3)
    print(f"plan {EXAMPLES[1].name} with every purchase mode and platform: {best:.3f} s (best of 3)")
    large = many_offers(catalog, 100_000)
    workload = load_workload(EXAMPLES[0], as_of=AS_OF)
    seconds = _seconds(lambda: make_plan(workload, large))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"plan over {len(large.offers):,} offers: {seconds:.2f} s, peak memory of this process {peak_mib:.0f} MiB")
    if "--json" in sys.argv:
        print(json.dumps({"plan_s": figures, "plan_100k_offers_s": round(seconds, 3), "peak_mib": round(peak_mib)}))


def _seconds(call) -> float:  # type: ignore[no-untyped-def]
    start = perf_counter()
    call()
    return perf_counter() - start


if __name__ == "__main__":
    main()
