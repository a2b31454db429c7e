"""How long a portfolio of 50 workloads takes, and to which proven gap. Figures held to: 10 s, 1 %.

Workloads are made up from the examples (their sizes drawn from one seed), with shares of three providers, quotas, a
reserved base and runs that may be split. Run with `python benchmarks/portfolio_speed.py [--workloads N]`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from tonnage.catalog import Catalog, load_catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.portfolios import plan_portfolio
from tonnage.workload.jobs import BatchJob, ServeJob, TabularJob, TrainJob, Workload
from tonnage.workload.loading import load_workload
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry, Share

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.tonnage.yaml"))
AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


def scaled(workload: Workload, factor: float) -> Workload:
    """The same work, `factor` times as much."""
    job = workload.job
    if isinstance(job, ServeJob):
        return replace(workload, job=replace(job, rate_per_s=job.rate_per_s * factor))
    if isinstance(job, BatchJob):
        return replace(workload, job=replace(job, items=max(1, int(job.items * factor))))
    if isinstance(job, TabularJob):
        return replace(workload, job=replace(job, rows=max(1, int(job.rows * factor))))
    assert isinstance(job, TrainJob)
    return replace(workload, job=replace(job, samples=max(job.global_batch, int(job.samples * factor))))


def made_up(catalog: Catalog, count: int, seed: int) -> Portfolio:
    """`count` workloads of the examples' kinds, in drawn sizes, under shares, quotas and a reserved base."""
    random = np.random.default_rng(seed)
    examples = [load_workload(path, as_of=AS_OF, catalog=catalog) for path in EXAMPLES]
    entries = []
    for index in range(count):
        workload = scaled(examples[index % len(examples)], float(random.lognormal(-1.0, 0.7)))
        runs = 1 if isinstance(workload.job, ServeJob) else int(random.integers(1, 60))
        entries.append(
            PortfolioEntry(name=f"w{index}", workload=workload, runs_per_month=runs, split=bool(index % 3 == 0))
        )
    gpu = parse_gpu_filter
    return Portfolio(
        name="speed",
        entries=tuple(entries),
        as_of=AS_OF,
        shares=tuple(
            Share(provider=name, fraction=part) for name, part in (("aws", 0.6), ("gcp", 0.3), ("azure", 0.1))
        ),
        share_tolerance=0.05,
        capacity=(
            CapacityLimit(gpu=gpu("A100"), at_once=64, provider="gcp"),
            CapacityLimit(gpu=gpu("T4"), at_once=64, provider="aws"),
            CapacityLimit(gpu=gpu("H100"), at_once=64),
        ),
        commitments=(Commitment(provider="aws", gpu=gpu("A10G"), usd_per_gpu_hour=0.65, gpus=8, up_to_gpus=64),),
        budget_usd=1e6,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    catalog, figures = load_catalog(), []
    for seed in range(given.seeds):
        portfolio = made_up(catalog, given.workloads, seed)
        start, cpu = perf_counter(), process_time()
        answer = plan_portfolio(portfolio, catalog)
        seconds, cpu = perf_counter() - start, process_time() - cpu
        gap = None if answer.gap is None else round(answer.gap, 5)
        figures.append(
            {
                "seed": seed,
                "seconds": round(seconds, 2),
                "cpu_s": round(cpu, 2),
                "gap": gap,
                "candidates": answer.candidates,
            }
        )
        total = "no assignment" if answer.total_usd is None else f"${answer.total_usd.value:,.0f} a month"
        proven = "none" if gap is None else f"{100 * gap:.3f} %"
        print(f"seed {seed}: {given.workloads} workloads, {answer.candidates} candidates: {seconds:.2f} s", end=" ")
        print(f"({cpu:.2f} s of processor), {total}, proven gap {proven}, gives {[give.name for give in answer.gives]}")
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
