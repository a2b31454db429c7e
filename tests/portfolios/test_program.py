"""The program finds what trying every assignment finds; its prices are what really relaxing a limit saves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.portfolios.elastic import find_gives
from tonnage.portfolios.model import Candidate, not_beaten
from tonnage.portfolios.prices import Solved, price_limits
from tonnage.portfolios.program import build_program
from tonnage.portfolios.solver import solve
from tonnage.workload.portfolio.values import CapacityLimit, Portfolio, PortfolioEntry, Share

from .conftest import AS_OF, HOURS, candidate, option, random_case, workload

CENT = 1e-4


def ways(portfolio: Portfolio, candidates: list[Candidate]) -> Iterator[list[int]]:
    """Runs of every candidate, in every assignment there is."""
    per_entry = []
    for index, entry in enumerate(portfolio.entries):
        numbers = [n for n, one in enumerate(candidates) if one.entry == index]
        runs = entry.runs_per_month
        if entry.split:
            counts = [c for c in itertools.product(range(runs + 1), repeat=len(numbers)) if sum(c) == runs]
        else:
            counts = [tuple(runs * (n == m) for m in numbers) for n in numbers]
        per_entry.append([dict(zip(numbers, c, strict=True)) for c in counts])
    for choice in itertools.product(*per_entry):
        merged = {number: runs for part in choice for number, runs in part.items()}
        yield [merged[number] for number in range(len(candidates))]


def holds(portfolio: Portfolio, candidates: list[Candidate], runs: list[int]) -> float | None:
    """The cost of an assignment without commitments; None where a limit breaks."""
    used = [(one, count) for one, count in zip(candidates, runs, strict=True) if count]
    total = sum(one.usd * count for one, count in used)
    for number, limit in enumerate(portfolio.capacity):
        if sum(one.gpus * one.at_once(count) for one, count in used if number in one.capacity) > limit.at_once + 1e-9:
            return None
    for share in portfolio.shares:
        spent = sum(one.usd * count for one, count in used if one.option.provider == share.provider)
        if abs(spent / total - share.fraction) > portfolio.share_tolerance + 1e-9:
            return None
    if portfolio.budget_usd is not None and total > portfolio.budget_usd + 1e-9:
        return None
    return total


def cheapest(portfolio: Portfolio, candidates: list[Candidate]) -> float | None:
    costs = [holds(portfolio, candidates, runs) for runs in ways(portfolio, candidates)]
    return min((cost for cost in costs if cost is not None), default=None)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("shares", [False, True], ids=["free", "shares"])
def test_program_finds_what_brute_force_finds(split: bool, shares: bool) -> None:
    """On 40 random cases each: the same cost to the cent, or no solution in both."""
    outcomes = []
    for seed in range(40):
        portfolio, candidates = random_case(seed, split=split, shares=shares)
        found = solve(build_program(portfolio, candidates), gap=0.0)
        expected = cheapest(portfolio, candidates)
        assert (found is None) == (expected is None), seed
        outcomes.append(found is None)
        if found is not None and expected is not None:
            assert found.total == pytest.approx(expected, abs=CENT), seed
            assert found.bound <= expected + CENT, seed
    assert True in outcomes or not shares  # some cases have no solution, so both answers are tried
    assert False in outcomes


def best_with_pool(portfolio: Portfolio, candidates: list[Candidate]) -> float:
    """Every assignment x every number of committed GPUs; all GPU-hours cost the same here, so filling is greedy."""
    (one,) = portfolio.commitments
    best = math.inf
    for runs in ways(portfolio, candidates):
        total = holds(portfolio, candidates, runs)
        if total is None:
            continue
        drawing = [(c, n) for c, n in zip(candidates, runs, strict=True) if n and c.pools]
        hours = sum(c.gpu_hours * n for c, n in drawing)
        must = sum((c.usd - cheapest_like(c, candidates)) * n for c, n in drawing)
        for gpus in range(one.up_to_gpus + 1):
            saved = 2.0 * min(hours, gpus * HOURS * one.usable_fraction)
            paid = gpus * HOURS * one.usd_per_gpu_hour
            if saved >= paid - 1e-9 and saved >= must - 1e-9:
                best = min(best, total - saved + paid)
    return best


def cheapest_like(one: Candidate, candidates: list[Candidate]) -> float:
    same = [c for c in candidates if c.entry == one.entry and c.option.provider == one.option.provider]
    return min(c.usd for c in same if not c.capacity or (one.capacity and c.gpus <= one.gpus and c.hours <= one.hours))


def test_committed_hours_are_bought_as_brute_force_buys_them() -> None:
    """With a reserved base to choose: the cheapest number of committed GPUs and the cheapest use of them."""
    committed = 0
    for seed in range(40):
        portfolio, candidates = random_case(seed, split=False, shares=False, capacity=False, pool=True)
        program = build_program(portfolio, candidates)
        found = solve(program, gap=0.0)
        assert found is not None
        assert found.total == pytest.approx(best_with_pool(portfolio, candidates), rel=1e-6), seed
        committed += round(float(found.x[program.steps[0]]))
    assert committed > 0


def test_shadow_prices_are_what_relaxing_saves() -> None:
    """Each price is the cost less that of a portfolio really written with the looser limit, found by brute force."""
    saving = 0
    for seed in range(60):
        portfolio, candidates = random_case(seed, split=False, shares=True)
        program = build_program(portfolio, candidates)
        found = solve(program, gap=0.0)
        if found is None:
            continue
        solved = Solved(portfolio=portfolio, candidates=candidates, program=program, solution=found)
        for limit in price_limits(solved):
            if limit.kind != "capacity":
                continue
            more = replace(portfolio.capacity[0], at_once=portfolio.capacity[0].at_once + int(limit.step))
            again = cheapest(replace(portfolio, capacity=(more,)), candidates)
            assert again is not None
            assert limit.saves_usd_per_month == pytest.approx(found.total - again, abs=1e-3), seed
            assert limit.binds == (found.total - again > 1e-3)
            saving += limit.binds
    assert saving >= 3


def test_a_tolerance_costs_what_the_cheaper_provider_would_save() -> None:
    """One point more of tolerance moves runs to the cheap provider; counting runs by hand gives the same saving.

    Either share alone saves nothing, since the other mirrors it.
    """
    entries = (PortfolioEntry(name="w", workload=workload(), runs_per_month=1000, split=True),)
    both = [candidate(0, option("aws", "a", 2.0, 1.0)), candidate(0, option("gcp", "b", 1.0, 1.0))]
    shares = (Share(provider="aws", fraction=0.5), Share(provider="gcp", fraction=0.5))
    portfolio = Portfolio(name="p", entries=entries, as_of=AS_OF, shares=shares, share_tolerance=0.1)
    program = build_program(portfolio, both)
    found = solve(program, gap=0.0)
    assert found is not None
    limits = price_limits(Solved(portfolio=portfolio, candidates=both, program=program, solution=found))
    price = {limit.name: limit.saves_usd_per_month for limit in limits}

    def total(least: float) -> float:
        return min(1000.0 + n for n in range(1001) if 2 * n >= least * (1000 + n) - 1e-9)

    assert found.total == pytest.approx(total(0.40))
    assert total(0.40) - total(0.39) == 7.0
    assert price["share tolerance"] == pytest.approx(total(0.40) - total(0.39), abs=1e-6)
    assert price["aws share at least"] == price["gcp share at most"] == 0.0


def test_what_must_give_is_enough_and_less_is_not() -> None:
    """Raising a limit to the figure named makes a solution; one GPU less does not. Verified by brute force."""
    tried = 0
    for seed in range(80):
        portfolio, candidates = random_case(seed, split=False, shares=False)
        small = (replace(portfolio.capacity[0], at_once=2),)
        portfolio = replace(portfolio, capacity=small)
        program = build_program(portfolio, candidates)
        if solve(program) is not None:
            continue
        gives = find_gives(portfolio, program, candidates)
        assert [give.kind for give in gives] == ["capacity"]
        assert gives[0].alone
        for at_once, fits in ((gives[0].needed, True), (gives[0].needed - 1, False)):
            limit = replace(small[0], at_once=int(at_once))
            assert (cheapest(replace(portfolio, capacity=(limit,)), candidates) is not None) == fits, seed
        tried += 1
    assert tried >= 10


def test_several_limits_give_where_one_is_not_enough() -> None:
    """Two workloads, each stuck at a limit of its own: both limits are named, none as enough alone."""
    gpu = parse_gpu_filter("T4")
    entries = tuple(PortfolioEntry(name=name, workload=workload()) for name in "ab")
    limits = tuple(CapacityLimit(gpu=gpu, at_once=1, provider=provider) for provider in ("aws", "gcp"))
    portfolio = Portfolio(name="p", entries=entries, as_of=AS_OF, capacity=limits)
    stuck = [
        candidate(0, option("aws", "a", 2.0, 1.0, gpus=4), capacity=(0,)),
        candidate(1, option("gcp", "b", 2.0, 1.0, gpus=2), capacity=(1,)),
    ]
    program = build_program(portfolio, stuck)
    assert solve(program) is None
    gives = find_gives(portfolio, program, stuck)
    assert {(give.name, give.needed, give.alone) for give in gives} == {
        ("T4 at once at aws", 4.0, False),
        ("T4 at once at gcp", 2.0, False),
    }


def test_a_budget_below_the_cheapest_says_what_it_takes() -> None:
    """The budget's elastic figure is the cost of the cheapest assignment."""
    for seed in range(10):
        portfolio, candidates = random_case(seed, split=False, shares=False, capacity=False)
        least = cheapest(portfolio, candidates)
        assert least is not None
        poor = replace(portfolio, budget_usd=least * 0.9)
        program = build_program(poor, candidates)
        assert solve(program) is None
        (give,) = find_gives(poor, program, candidates)
        assert (give.kind, give.alone) == ("budget", True)
        assert give.needed == pytest.approx(least, rel=1e-4)


def test_pruning_keeps_the_optimum() -> None:
    """Without shares the pruned candidates give the same cost as all of them."""
    pruned_away = 0
    for seed in range(40):
        portfolio, candidates = random_case(seed, split=seed % 2 == 0, shares=False)
        kept = [one for index in range(3) for one in not_beaten(c for c in candidates if c.entry == index)]
        pruned_away += len(candidates) - len(kept)
        costs = [solve(build_program(portfolio, some), gap=0.0) for some in (candidates, kept)]
        assert (costs[0] is None) == (costs[1] is None), seed
        if costs[0] is not None and costs[1] is not None:
            assert costs[0].total == pytest.approx(costs[1].total, abs=CENT)
    assert pruned_away > 10


def test_runs_are_whole_and_all_are_placed() -> None:
    """Split runs add up to what was asked."""
    for seed in range(20):
        portfolio, candidates = random_case(seed, split=True, shares=True)
        program = build_program(portfolio, candidates)
        found = solve(program)
        if found is None:
            continue
        placed = np.zeros(3, dtype=int)
        for number, one in enumerate(candidates):
            placed[one.entry] += program.runs(number, found.x)
        assert placed.tolist() == [entry.runs_per_month for entry in portfolio.entries]
