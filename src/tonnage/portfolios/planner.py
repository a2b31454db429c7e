"""Portfolio x catalog -> assignment: plan each workload, prune, solve, price the limits, say what must give.

Each workload is planned over the catalog, and over each region that a limit names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.notes import left_out_notes
from tonnage.planning.plan import CatalogStamp, Option, Plan, may_win
from tonnage.planning.planner import make_plan
from tonnage.planning.reasons.notes import (
    CommittedHoursNote,
    PortfolioNote,
    ReservedLeftOutNote,
    SharedCapacityNote,
    SharesNote,
)
from tonnage.portfolios.answer import Assignment, Commit, PortfolioPlan, ProviderSpend, Unplaced
from tonnage.portfolios.elastic import find_gives
from tonnage.portfolios.model import Candidate, candidates_of
from tonnage.portfolios.prices import Replan, Solved, price_limits
from tonnage.portfolios.program import build_program
from tonnage.portfolios.solver import solve
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH
from tonnage.workload.jobs import Workload
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry


def plan_portfolio(
    portfolio: Portfolio, catalog: Catalog, *, calibrated: CalibratedModel | None = None
) -> PortfolioPlan:
    """The cheapest assignment that holds every limit, with a proven gap.

    Raises PortfolioUnsolved where the solver finds neither an assignment nor a proof that there is none. Where none
    exists the answer has no assignments, and `gives` or `unplaced` say why.
    """
    apart = tuple(part for one in portfolio.commitments for part in one.apart())
    portfolio = replace(portfolio, commitments=apart)
    planned = [entry_plans(entry, portfolio, catalog, calibrated) for entry in portfolio.entries]
    candidates: list[Candidate] = []
    unplaced: list[Unplaced] = []
    for index, (entry, plans) in enumerate(zip(portfolio.entries, planned, strict=True)):
        found = candidates_of(index, entry, _options(plans), portfolio, catalog)
        candidates += found
        if not found:
            unplaced.append(_unplaced(entry, plans))
    notes = (*left_out_notes(catalog), *_notes(portfolio))
    empty = _empty(portfolio, candidates, _stamp(planned), tuple(unplaced), notes)
    if unplaced:
        return empty
    program = build_program(portfolio, candidates)
    solution = solve(program)
    if solution is None:
        return replace(empty, gives=find_gives(portfolio, program, candidates))
    solved = Solved(portfolio=portfolio, candidates=candidates, program=program, solution=solution)

    def replan(index: int, deadline_s: float) -> list[Candidate]:
        entry = portfolio.entries[index]
        limits = replace(entry.workload.constraints, deadline_s=deadline_s)
        later = replace(entry, workload=replace(entry.workload, constraints=limits))
        options = _options(entry_plans(later, portfolio, catalog, calibrated))
        return candidates_of(index, entry, options, portfolio, catalog)

    return _answer(empty, solved, replan)


def _options(plans: Sequence[Plan]) -> list[Option]:
    listed = (option for plan in plans for option in plan.options)
    return list(may_win(listed, any_price=any(plan.any_price for plan in plans)))


def _unplaced(entry: PortfolioEntry, plans: Sequence[Plan]) -> Unplaced:
    plan = plans[0]
    if options := _options(plans):
        sellers = tuple(sorted({option.provider for option in options}))
        return Unplaced(workload=entry.name, refused=len(options), sellers=sellers, plan=plan)
    return Unplaced(workload=entry.name, refused=sum(len(one.refused) for one in plans), sellers=(), plan=plan)


def _empty(
    portfolio: Portfolio,
    candidates: Sequence[Candidate],
    stamp: CatalogStamp,
    unplaced: tuple[Unplaced, ...],
    notes: tuple[PortfolioNote, ...],
) -> PortfolioPlan:
    return PortfolioPlan(
        name=portfolio.name, as_of=portfolio.as_of, assignments=(), commits=(), spend=(), total_usd=None,
        bound_usd=None, gap=None, limits=(), gives=(), unplaced=unplaced, workloads=len(portfolio.entries),
        candidates=len(candidates), catalog=stamp, notes=notes,
    )  # fmt: skip


def _stamp(planned: Sequence[Sequence[Plan]]) -> CatalogStamp:
    """The catalog of all plans: the oldest price any of them compared."""
    stamps = [plan.catalog for plans in planned for plan in plans]
    oldest = [stamp.oldest_price for stamp in stamps if stamp.oldest_price is not None]
    return replace(
        stamps[0],
        oldest_price=min(oldest, default=None),
        undated_prices=max(stamp.undated_prices for stamp in stamps),
        offers=sum(plan.catalog.offers for plan in planned[0]),
    )


def _answer(empty: PortfolioPlan, solved: Solved, replan: Replan) -> PortfolioPlan:
    assignments, commits = _assignments(solved), _commits(solved)
    paid = sum(commit.cost_usd for commit in commits)

    def total(end: str) -> float:
        return float(sum(getattr(one.cost_usd, end) for one in assignments)) + paid

    value = total("value")
    return replace(
        empty,
        assignments=assignments,
        commits=commits,
        spend=_spend(solved.portfolio, assignments, commits, value),
        total_usd=Figure(value=value, low=total("low"), high=total("high")),
        bound_usd=min(solved.solution.bound, value),
        gap=solved.solution.gap,
        limits=price_limits(solved, replan),
    )


def _assignments(solved: Solved) -> tuple[Assignment, ...]:
    out = []
    for number, one in enumerate(solved.candidates):
        runs = solved.program.runs(number, solved.solution.x)
        if not runs:
            continue
        drawn = {
            pool: float(solved.solution.x[column])
            for (owner, pool), column in solved.program.drawn.items()
            if owner == number
        }
        saved = sum(drawn.values()) * one.usd_per_gpu_hour
        cost, lanes = one.option.cost_usd.scaled(runs), one.at_once(runs)
        out.append(
            Assignment(
                workload=solved.portfolio.entries[one.entry].name,
                option=one.option,
                runs=runs,
                at_once=lanes,
                gpus_at_once=one.gpus * lanes,
                cost_usd=Figure(
                    value=max(cost.value - saved, 0.0),
                    low=max(cost.low - saved, 0.0),
                    high=max(cost.high - saved, 0.0),
                    basis=cost.basis,
                ),
                committed_gpu_hours=sum(drawn.values()),
            )
        )
    order = {entry.name: place for place, entry in enumerate(solved.portfolio.entries)}
    return tuple(sorted(out, key=lambda one: (order[one.workload], -one.runs, one.option.identity)))


def _commits(solved: Solved) -> tuple[Commit, ...]:
    out = []
    for pool, one in enumerate(solved.portfolio.commitments):
        gpus = one.gpus + round(float(solved.solution.x[solved.program.steps[pool]])) * one.step_gpus
        used = sum(
            float(solved.solution.x[column]) for (_, drawn), column in solved.program.drawn.items() if drawn == pool
        )
        paid = gpus * HOURS_PER_MONTH
        out.append(
            Commit(
                commitment=one, gpus=gpus, used_gpu_hours=used, paid_gpu_hours=float(paid),
                cost_usd=paid * one.usd_per_gpu_hour,
            )
        )  # fmt: skip
    return tuple(out)


def _spend(
    portfolio: Portfolio, assignments: Sequence[Assignment], commits: Sequence[Commit], total: float
) -> tuple[ProviderSpend, ...]:
    wanted = {share.provider: share.fraction for share in portfolio.shares}
    usd: dict[str, float] = dict.fromkeys(wanted, 0.0)
    for one in assignments:
        usd[one.option.provider] = usd.get(one.option.provider, 0.0) + one.cost_usd.value
    for commit in commits:
        usd[commit.commitment.provider] = usd.get(commit.commitment.provider, 0.0) + commit.cost_usd
    rows = [
        ProviderSpend(provider=name, usd=amount, share=amount / total if total else 0.0, wanted=wanted.get(name))
        for name, amount in usd.items()
        if amount or name in wanted
    ]
    return tuple(sorted(rows, key=lambda row: (-row.usd, row.provider)))


def _notes(portfolio: Portfolio) -> Iterator[PortfolioNote]:
    if portfolio.capacity:
        yield SharedCapacityNote(hours_per_month=HOURS_PER_MONTH)
    if portfolio.commitments:
        yield CommittedHoursNote()
    if any(one.startswith("reserved") for entry in portfolio.entries for one in entry.workload.buy.purchases):
        yield ReservedLeftOutNote()
    if portfolio.shares:
        yield SharesNote(tolerance_fraction=portfolio.share_tolerance)


Place = tuple[str | None, str | None]


def entry_plans(
    entry: PortfolioEntry, portfolio: Portfolio, catalog: Catalog, calibrated: CalibratedModel | None
) -> list[Plan]:
    """The workload's plans: over the whole catalog, and over each region that a limit names.

    A plan keeps the cheapest region of a machine; where a limit names regions, the others may be needed too.
    """
    workload = _shared_by_runs(_without_reserved(entry.workload), entry.runs_per_month)
    providers = tuple(share.provider for share in portfolio.shares)
    if providers:
        workload = _within(workload, providers)
    return [make_plan(workload, part, calibrated=calibrated) for part in _parts(catalog, _named_places(portfolio))]


def _without_reserved(workload: Workload) -> Workload:
    """Commitments are bought for the portfolio, not pro rata for one run."""
    kept = tuple(one for one in workload.buy.purchases if not one.startswith("reserved"))
    return replace(workload, buy=replace(workload.buy, purchases=kept or ("on_demand",)))


def _shared_by_runs(workload: Workload, runs: int) -> Workload:
    """What comes once a month whatever the runs, set-up hours and committed spend, in equal parts on each run."""
    team, buy = workload.team, workload.buy
    return replace(
        workload,
        team=replace(team, setup_hours=tuple((name, hours / runs) for name, hours in team.setup_hours)),
        buy=replace(buy, committed_usd=tuple((name, usd / runs) for name, usd in buy.committed_usd)),
    )


def _within(workload: Workload, providers: tuple[str, ...]) -> Workload:
    own = workload.constraints.providers
    allowed = tuple(name for name in (own or providers) if name in providers)
    # None left: the workload keeps its own, and the shares will say that they cannot hold.
    return replace(workload, constraints=replace(workload.constraints, providers=allowed or own))


def _named_places(portfolio: Portfolio) -> tuple[Place, ...]:
    limits: Iterable[CapacityLimit | Commitment] = (*portfolio.capacity, *portfolio.commitments)
    return tuple(dict.fromkeys((one.provider, one.region) for one in limits if one.region is not None))


def _parts(catalog: Catalog, places: Sequence[Place]) -> list[Catalog]:
    """The catalog, and where regions are named: its offers split by the set of named places they lie in."""
    if not places:
        return [catalog]
    groups: dict[tuple[bool, ...], list[int]] = {}
    for number, offer in enumerate(catalog.offers):
        where = tuple(offer.region == region and provider in (None, offer.provider) for provider, region in places)
        groups.setdefault(where, []).append(number)
    return [replace(catalog, offers=tuple(catalog.offers[i] for i in rows)) for rows in groups.values()]
