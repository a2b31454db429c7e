"""How far the closed form of a fleet is from its event simulation, and how long the answers take.

Run with `python benchmarks/service_economics.py [--cases N]`. Figures held to: within 10 % on every case.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import numpy as np

from fleet_simulation import simulate_fleet
from tonnage.catalog import load_catalog
from tonnage.pricing.tokens import TokenPrices
from tonnage.rightsizing import MachineUsage, rightsize
from tonnage.rightsizing.rightsize import Where
from tonnage.service.answer import BreakEvenQuestion
from tonnage.service.autoscaling import Autoscaling, held_machines
from tonnage.service.breakeven import break_even
from tonnage.service.economics import Demand
from tonnage.service.rate_curve import RateCurve
from tonnage.workload.loading import load_workload

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("serve-*.tonnage.yaml"))
AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


def fleet_error(seed: int) -> float:
    """Closed form / one simulated day - 1 of a random fleet."""
    random = np.random.default_rng(seed)
    curve = RateCurve.of(random.uniform(0.2, 2.0, 24).tolist())
    rate, variation = float(random.uniform(0.3, 1.5)), float(random.choice([0.5, 1.0, 2.0, 3.0]))
    capacity, delay = rate / float(random.uniform(0.5, 12.0)), float(random.uniform(0, 1800))
    policy = Autoscaling(spare=int(random.integers(0, 2)), scale_in_delay_s=delay)
    slots = max(1, round(capacity * random.uniform(0.5, 20.0)))
    run = simulate_fleet(curve, rate, capacity, policy, concurrency=slots, seed=seed, variation=variation)
    return held_machines(curve, rate, capacity, policy, variation=variation).mean / run.mean_machines - 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    cases = parser.parse_args().cases
    errors = 100 * np.abs([fleet_error(seed) for seed in range(cases)])
    print(f"fleet: {cases} cases, |closed form / simulation - 1|: median {np.median(errors):.2f} %", end=", ")
    print(f"90th percentile {np.percentile(errors, 90):.2f} %, largest {np.max(errors):.2f} %")
    catalog = load_catalog()
    prices = [TokenPrices(name="p", usd_per_million_input=0.1, usd_per_million_output=0.2, source="", read_on=None)]
    question = BreakEvenQuestion(demand=Demand(curve=RateCurve.sinusoid(4.0)), policy=Autoscaling(spare=1))
    for path in EXAMPLES:
        workload = load_workload(path, as_of=AS_OF, catalog=catalog)
        start = perf_counter()
        break_even(workload, catalog, prices, question)
        print(f"break-even of {path.name}: {perf_counter() - start:.2f} s")
    machines = [one for one in catalog.instance_types if one.accelerator and catalog.offers_of(one)]
    start = perf_counter()
    for one in machines:
        usage = MachineUsage(
            name=one.name, instance=one, region=None, purchase="on_demand", hours_per_month=730.0, gpu_utilisation=0.2
        )
        rightsize(usage, catalog, Where(any_region=True))
    print(f"right-sizing of {len(machines)} machines in every region: {perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
