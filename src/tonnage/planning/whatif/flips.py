"""What would have made a loser win: for each candidate the smallest changes that flip it, every one of them tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from tonnage.catalog import Catalog
from tonnage.planning.plan import MachineOption, Option, Plan, Refusal
from tonnage.planning.reasons.changes import AnyChange, OnlyPlatform, TrustAny
from tonnage.planning.reasons.flips import Dimension, Flip
from tonnage.planning.whatif.changes import constrained, edit_of
from tonnage.planning.whatif.parameters import Parameter, machine_price, parameters_for, smallest_change
from tonnage.planning.whatif.scenario import Edit, GroupKey, Scenario, narrowed, with_workload
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

Planner = Callable[[Workload, Catalog], Plan]
LONGEST_CHAIN = 4  # changes in a row
MARKED_UP = ("databricks", "sagemaker", "vertex")  # platforms that resell a machine with a fee on it


def flips_of(loser: Option | Refusal, plan: Plan, scenario: Scenario, planner: Planner) -> tuple[Flip, ...]:
    """The smallest change in each dimension that matters to `loser`; empty where none that was tried is enough.

    An option that was ranked has to win; a refused candidate has to become an option. `plan` is the plan of
    `scenario`, made by `planner`.
    """
    group: GroupKey = _group_of(loser)
    found: list[Flip] = []
    if isinstance(loser, Refusal):
        chain = chain_that_fits(loser, scenario, planner)
        found += [chain] if chain is not None else []
    elif not plan.any_price and plan.best is not None and loser.doubt_level > plan.best.doubt_level:
        return tuple(_trusting(scenario, group, planner))
    elif loser.platform in MARKED_UP:
        found += _on_its_platform(loser, scenario, group, planner)
    trial = _Trial(loser=loser, plan=plan, scenario=scenario, group=group, planner=planner)
    perturbed = (trial.perturb(parameter) for parameter in parameters_for(loser, plan, scenario))
    return (*found, *(flip for flip in perturbed if flip is not None))


def _trusting(scenario: Scenario, group: GroupKey, planner: Planner) -> Iterator[Flip]:
    """Any price trusted, and what it takes besides."""
    edit, trust = with_workload(constrained(trust="any")), TrustAny()
    trusting = edit(scenario)
    plan = planner(trusting.workload, trusting.catalog)
    own = _option_of(plan, group)
    if own is not None and own.rank == 1:
        yield _flip("constraint", (trust,), own, own, edit)
    elif own is not None:
        for flip in flips_of(own, plan, trusting, planner):
            yield replace(flip, changes=(trust, *flip.changes), edit=_all_of((edit, flip.edit)))


def _on_its_platform(loser: Option, scenario: Scenario, group: GroupKey, planner: Planner) -> Iterator[Flip]:
    """The platform alone allowed, and where that is not enough a lower price of the machine there besides.

    A platform that adds a fee to a machine never beats the same machine bought plainly, whatever the machine costs.
    """
    change = OnlyPlatform(platform=loser.platform)
    only = with_workload(constrained(platforms=(loser.platform,)))
    inside = only(scenario)
    plan = planner(inside.workload, inside.catalog)
    own = _option_of(plan, group)
    if own is None:
        return
    if own.rank == 1:
        yield _flip("constraint", (change,), loser, own, only)
        return
    if loser.platform == "sagemaker":  # its fee is what its own price is above the machine's: lower the one, and the
        return  # other is as much higher; `parameters_for` tries that own price
    trial = _Trial(loser=own, plan=plan, scenario=inside, group=group, planner=planner)
    for parameter in machine_price(own, group, inside.catalog):
        flip = trial.perturb(parameter)
        if flip is not None:
            yield replace(flip, changes=(change, *flip.changes), edit=_all_of((only, flip.edit)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    loser: Option | Refusal
    plan: Plan
    scenario: Scenario
    group: GroupKey
    planner: Planner

    def perturb(self, parameter: Parameter) -> Flip | None:
        """The smallest change of the parameter that is enough, as a flip."""
        outcome = cache(lambda factor: self.outcome(parameter, factor))  # the last factor has been tried already
        factor = smallest_change(parameter, lambda x: outcome(x) is not None)
        found = None if factor is None else outcome(factor)
        if factor is None or found is None:
            return None
        return _flip(parameter.dimension, (parameter.change(factor),), self.loser, found, parameter.edit(factor))

    def outcome(self, parameter: Parameter, factor: float) -> Option | None:
        """The loser as it is after the change, where that is enough."""
        edited = parameter.edit(factor)(self.scenario)
        alone = narrowed(edited, self.group)
        own = _option_of(self.planner(alone.workload, alone.catalog), self.group)
        if own is None or isinstance(self.loser, Refusal):
            return own
        if parameter.dimension in ("price", "speed") and self._alone_in_it:
            return own if self._beats(own) else None  # all others stay as they are, or cost a fee more than this one
        best = self.planner(edited.workload, edited.catalog).best
        return own if best is not None and _group_of(best) == self.group else None

    @property
    def _alone_in_it(self) -> bool:
        """Whether no other way to buy the same machine gets better with it and could still be ahead."""
        platforms = self.scenario.workload.constraints.platforms
        return self.loser.platform == "vm" or (self.loser.platform == "databricks" and platforms == ("databricks",))

    def _beats(self, own: Option) -> bool:
        machine = self.group[:3]  # what platforms resell of it gets cheaper with it
        others = (one for one in self.plan.options if _group_of(one)[:3] != machine)
        best = next(others, None)
        if best is None:
            return True
        if self.plan.objective == "time" and own.time_s is not None and best.time_s is not None:
            return own.time_s.value < best.time_s.value
        return own.cost_usd.value < best.cost_usd.value


def chain_that_fits(miss: Refusal, scenario: Scenario, planner: Planner) -> Flip | None:
    """The changes that refusals themselves propose, one after the other, until the candidate is an option."""
    group, first = _group_of(miss), miss
    alone, changes, edits = narrowed(scenario, group), list[AnyChange](), list[Edit]()
    for _ in range(LONGEST_CHAIN):
        change = next(iter(miss.miss.lifted_by), None)
        edit = None if change is None else edit_of(change)
        if change is None or edit is None:
            return None
        edits.append(with_workload(edit))
        changes.append(change)
        alone = edits[-1](alone)
        answer = planner(alone.workload, alone.catalog)
        now = _option_of(answer, group)
        if now is not None:
            return _flip("constraint", tuple(changes), first, now, _all_of(tuple(edits)))
        key = (miss.platform, miss.instance_type)
        still = next((one for one in answer.refused if (one.platform, one.instance_type) == key), None)
        if still is None:
            return None
        miss = still
    return None


def _all_of(edits: tuple[Edit, ...]) -> Edit:
    def edit(scenario: Scenario) -> Scenario:
        for one in edits:
            scenario = one(scenario)
        return scenario

    return edit


def _flip(
    dimension: Dimension, changes: tuple[AnyChange, ...], loser: Option | Refusal, outcome: Option, edit: Edit
) -> Flip:
    return Flip(
        dimension=dimension,
        changes=changes,
        becomes="winner" if isinstance(loser, Option) else "option",
        cost_usd=outcome.cost_usd.value,
        time_s=None if outcome.time_s is None else outcome.time_s.value,
        count=outcome.count if isinstance(outcome, MachineOption) else None,
        edit=edit,
    )


def _group_of(one: Option | Refusal) -> GroupKey:
    return (one.provider, one.instance_type, one.purchase, one.platform)


def _option_of(plan: Plan, group: GroupKey) -> Option | None:
    """The group's option (a refusal without a purchase mode: any of the machine's)."""
    wanted = (group[2],) if group[2] is not None else None
    return next(
        (
            one
            for one in plan.options
            if (one.provider, one.instance_type, one.platform) == (group[0], group[1], group[3])
            and (wanted is None or one.purchase in wanted)
        ),
        None,
    )
