"""The whole comparison of one compare file: values in, one value out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from math import isclose
from typing import Final

from tonnage.catalog import Catalog
from tonnage.comparison.alike import Alike, speeds_alike, with_speeds
from tonnage.comparison.alternative_checks import check_alternatives
from tonnage.comparison.answering import ComparisonAnswer, HorizonAdvice, advise, answer_of, inputs_of, preference_of
from tonnage.comparison.compliance import ComplianceStanding, Match, match_rules, rule_problems, standards_of
from tonnage.comparison.computed import Planner, Total, WorkDemand, compute_total
from tonnage.comparison.criteria import Criterion, load_criteria, weight_problems
from tonnage.comparison.crossings import CostCrossing, break_evens
from tonnage.comparison.decision import Decision, decide
from tonnage.comparison.facts import gather_facts
from tonnage.comparison.horizons import EntryCost
from tonnage.comparison.migration import WORKING_DAYS, Migration, plan_migration
from tonnage.comparison.narrowed import of_its_machines
from tonnage.comparison.request import CompareRequest, Move
from tonnage.comparison.rules import load_rules
from tonnage.comparison.scoring import (
    Scored,
    Scores,
    WeightFlip,
    common_criteria,
    score_all,
    stability,
    weight_flips,
    weighted,
)
from tonnage.comparison.sizes import USUAL, Size, load_sizes
from tonnage.comparison.splitting import EntryOf, Split, best_split
from tonnage.comparison.tasks import load_templates
from tonnage.errors import InputError, WorkloadError
from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

LEADS_BY: Final = 1.0  # points of score that count as a strength or weakness
HOURS_PER_DAY: Final = 6.0
EVERY_PAIR: Final = 4  # alternatives up to which every move is planned


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeOff:
    """What one alternative does better and worse than the mean of the others: (criterion, points)."""

    alternative: str
    better: tuple[tuple[str, float], ...]
    worse: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything a report shows."""

    request: CompareRequest
    as_of: datetime
    criteria: tuple[Criterion, ...]
    works: tuple[WorkDemand, ...]
    totals: Mapping[str, Total]
    scores: Scores
    able: tuple[str, ...]  # alternatives that can do all the work
    standing: ComplianceStanding
    counted: tuple[str, ...]  # criteria in the weighted score
    ranking: tuple[Scored, ...]
    flips: tuple[WeightFlip, ...]
    alike: tuple[Alike, ...]
    first_share: Mapping[str, float]
    crossings: tuple[CostCrossing, ...]
    decision: Decision
    answer: ComparisonAnswer
    advice: tuple[HorizonAdvice, ...]
    entries: Mapping[str, EntryCost]
    size: Size | None  # None: not said, decided as for a mid-size one
    split: Split
    trade_offs: tuple[TradeOff, ...]
    migration: Migration | None
    moves: tuple[Migration, ...]  # from each to each other, or to and from where one is now
    leaders: tuple[tuple[str, tuple[str, ...]], ...]  # who leads by part of the score: (part, all that are level)
    assumptions: tuple[Assumption, ...]

    def record_of(self, alternative: str, standard: str) -> Match:
        """How an alternative fares with a rule, whether it is asked for or not."""
        one = next(one for one in self.request.alternatives if one.name == alternative)
        found = providers_of(self.totals[alternative])
        return match_rules(one.profile, (standard,), self.request.attestations, found, one.attests)[0]

    @property
    def own_advice(self) -> tuple[HorizonAdvice, ...]:
        """The verdicts by horizon of the user's own size, or of the usual one where it is not said."""
        name = self.size.name if self.size else USUAL
        return tuple(one for one in self.advice if one.size.name == name)

    @property
    def title_of(self) -> Mapping[str, str]:
        return {alternative.name: alternative.title for alternative in self.request.alternatives}


def match_works(request: CompareRequest, workloads: Sequence[Workload]) -> tuple[WorkDemand, ...]:
    """Each workload with its volume. WorkloadError where a job has none, a service has one, or names repeat."""
    out: list[WorkDemand] = []
    for place, (entry, workload) in enumerate(zip(request.works, workloads, strict=True)):
        key = f"workloads[{place}]"
        service = workload.is_service
        if service and entry.jobs_per_month is not None:
            raise WorkloadError(
                "a service has no jobs a month", hint="its own file states its rate", file=request.file, key=key
            )
        if not service and entry.jobs_per_month is None:
            hint = f"how often {workload.name} runs: jobs_per_month: 4"
            raise WorkloadError("has no volume", hint=hint, file=request.file, key=key)
        if any(one.name == workload.name for one in out):
            raise WorkloadError(
                f"a second workload is named '{workload.name}'", hint="give it a `name`", file=request.file, key=key
            )
        out.append(WorkDemand(workload=workload, jobs_per_month=entry.jobs_per_month))
    return tuple(out)


def compare(
    request: CompareRequest,
    workloads: Sequence[Workload],
    catalog: Catalog,
    planner: Planner,
    *,
    as_of: datetime,
    assumptions: Sequence[Assumption] = (),
) -> Comparison:
    """Everything that a compare file asks for. WorkloadError and UnknownName for what is wrong with the request."""
    check_alternatives(request, catalog)
    request = replace(request, alternatives=tuple(of_its_machines(one, catalog) for one in request.alternatives))
    works, criteria = match_works(request, workloads), load_criteria()
    load_rules(request.rules, request.folder)  # what is wrong with it is said before anything is planned
    totals = {
        alternative.name: compute_total(
            alternative,
            works,
            catalog,
            planner,
            factors=request.volume_factors,
            usd_per_hour=request.organisation.usd_per_hour,
            power=request.power,
            file=request.file,
        )
        for alternative in request.alternatives
    }
    alike = speeds_alike(totals)
    totals = with_speeds(totals, alike)
    return _concluded(request, _Computed(
        as_of=as_of, criteria=criteria, works=works, totals=totals, alike=alike,
        migration=_migration(request, works, as_of), moves=_moves(request, works, as_of),
        crossings=break_evens(tuple(totals.values())), assumptions=tuple(assumptions),
    ))  # fmt: skip


def reweighted(found: Comparison, weights: Mapping[str, float]) -> Comparison:
    """The comparison as it comes out with these weights in the place of some; nothing is planned again.

    Raises InputError for what is no criterion or is not scored, for a weight that is negative or not finite, and where
    none is above 0.
    """
    for problem in weight_problems(weights, found.criteria):
        raise InputError(f"{'.'.join(map(str, problem.path))}: {problem.message}", hint=problem.hint)
    request = found.request
    merged = {**request.weights, **{key: value for key, value in weights.items() if key in request.weights}}
    if not any(value > 0 for value in merged.values()):
        raise InputError("no weight is above 0", hint="give at least one criterion a weight")
    asked = replace(request, weights=merged, weights_given=request.weights_given | frozenset(weights))
    return _concluded(asked, _Computed(
        as_of=found.as_of, criteria=found.criteria, works=found.works, totals=found.totals, alike=found.alike,
        migration=found.migration, moves=found.moves, crossings=found.crossings, assumptions=found.assumptions,
    ))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    """What of a comparison no weight has a part in."""

    as_of: datetime
    criteria: tuple[Criterion, ...]
    works: tuple[WorkDemand, ...]
    totals: Mapping[str, Total]
    alike: tuple[Alike, ...]
    migration: Migration | None
    moves: tuple[Migration, ...]
    crossings: tuple[CostCrossing, ...]
    assumptions: tuple[Assumption, ...]


def _concluded(request: CompareRequest, computed: _Computed) -> Comparison:
    """The answer to what was computed, and all that its reader weighs."""
    works, criteria, totals, as_of = computed.works, computed.criteria, computed.totals, computed.as_of
    rules = load_rules(request.rules, request.folder)
    able = tuple(name for name, total in totals.items() if total.can_do)
    scores = score_all(
        criteria, request.alternatives, totals, {name: total.usd_per_month for name, total in totals.items()}
    )
    standing = _standing(request, works, totals)
    running = standing.allowed(able) or able or tuple(totals)
    ranking = weighted(scores, request.weights, running)
    decision = decide(rules, gather_facts(request, rules, works, totals, standing))
    entries = {
        alternative.name: _entry(request, works, totals[alternative.name], as_of)
        for alternative in request.alternatives
    }
    inputs = inputs_of(request, totals, entries, standing, scores, preference_of(decision, request))
    counted = common_criteria(scores, request.weights, running)
    answer = answer_of(inputs, request, totals, criteria, ranking, counted, decision)
    return Comparison(
        request=request,
        as_of=as_of,
        criteria=criteria,
        works=works,
        totals=totals,
        scores=scores,
        able=able,
        standing=standing,
        counted=counted,
        ranking=ranking,
        flips=weight_flips(scores, request.weights, running),
        alike=computed.alike,
        first_share=stability(scores, request.weights, running, draws=request.draws, seed=request.seed),
        crossings=computed.crossings,
        decision=decision,
        answer=answer,
        advice=advise(inputs, request),
        entries=entries,
        size=load_sizes().of(request.organisation.employees),
        split=best_split(totals, inputs, answer.verdict, _entry_of(request, works, totals, as_of)),
        trade_offs=tuple(_trade_off(name, scores, tuple(totals)) for name in totals),
        migration=computed.migration,
        moves=computed.moves,
        leaders=_leaders(criteria, scores, request.weights, running),
        assumptions=computed.assumptions,
    )


def providers_of(total: Total) -> tuple[str, ...]:
    """Whose machines the cheapest options of a alternative are."""
    return tuple(sorted({row.option.provider for row in total.rows if row.option is not None}))


def _standing(request: CompareRequest, works: Sequence[WorkDemand], totals: Mapping[str, Total]) -> ComplianceStanding:
    """The rules of the compare file and of its workloads, beside what each alternative's profile attests."""
    profiles = {alternative.name: alternative.profile for alternative in request.alternatives}
    asked = [rule for one in works for rule in one.workload.team.compliance]
    wrong = rule_problems(asked, profiles, ("team", "compliance"))
    if wrong:
        raise WorkloadError(wrong[0].message, hint=wrong[0].hint, file=request.file, key="workloads: team.compliance")
    needs = tuple(dict.fromkeys([*request.organisation.compliance, *standards_of(asked, profiles)]))
    matches = {
        alternative.name: match_rules(
            alternative.profile,
            needs,
            request.attestations,
            providers_of(totals[alternative.name]),
            alternative.attests,
        )
        for alternative in request.alternatives
    }
    return ComplianceStanding(needs=needs, matches=matches)


def _migration(request: CompareRequest, works: Sequence[WorkDemand], as_of: datetime) -> Migration | None:
    if request.move is None:
        return None
    return _plan_move(request, request.move, works, as_of)


def _plan_move(request: CompareRequest, move: Move, works: Sequence[WorkDemand], as_of: datetime) -> Migration:
    alternatives = {alternative.name: alternative for alternative in request.alternatives}
    file = request.file or "compare.tonnage.yaml"
    return plan_migration(move, alternatives, works, load_templates(), today=as_of.date(), compare_file=file)


def _moves(request: CompareRequest, works: Sequence[WorkDemand], as_of: datetime) -> tuple[Migration, ...]:
    """Every pair of up to four alternatives; of more, those from where one is now (else from the first)."""
    names = [alternative.name for alternative in request.alternatives]
    move = request.move or Move.model_validate({"from": names[0], "to": names[1]})
    pairs = [(origin, target) for origin in names for target in names if origin != target]
    if len(names) > EVERY_PAIR:
        pairs = [pair for pair in pairs if pair[0] == move.origin]
    return tuple(
        _plan_move(request, move.model_copy(update={"origin": one, "target": other}), works, as_of)
        for one, other in pairs
    )


def _leaders(
    criteria: Sequence[Criterion], scores: Scores, weights: Mapping[str, float], names: Sequence[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Who leads by cost a month alone, by what is computed, by what is judged; what is not known of any is left out."""
    computed = {criterion.key for criterion in criteria if criterion.measure is not None}
    parts = {
        "cost a month alone": {"cost": 1.0},
        "what is computed": {key: weight for key, weight in weights.items() if key in computed},
        "what is judged": {key: weight for key, weight in weights.items() if key not in computed},
    }
    out = []
    for part, own in parts.items():
        if len(names) > 1 and common_criteria(scores, own, names):
            ranking = weighted(scores, own, names)
            out.append((part, tuple(one.alternative for one in ranking if isclose(one.total, ranking[0].total))))
    return tuple(out)


def _entry(request: CompareRequest, works: Sequence[WorkDemand], total: Total, as_of: datetime) -> EntryCost:
    """Being there already costs nothing; else the set-up, and the move where there is something to move from."""
    move, rate = request.move, request.organisation.usd_per_hour
    if move is not None and move.origin == total.alternative:
        return EntryCost(usd=None, weeks=None)
    if move is None:
        hours = total.setup_hours
        people = request.organisation.team_size or 1
        weeks = None if hours is None else hours.likely / (HOURS_PER_DAY * min(people, 2)) / WORKING_DAYS
        return EntryCost(usd=total.setup_usd, weeks=weeks)
    plan = _plan_move(request, move.model_copy(update={"target": total.alternative}), works, as_of)
    effort, usd = plan.hours, None
    if rate is not None:
        usd = Figure(value=effort.likely * rate, low=effort.low * rate, high=effort.high * rate, basis="assumed")
    return EntryCost(usd=usd, weeks=plan.weeks())


def _entry_of(
    request: CompareRequest, works: Sequence[WorkDemand], totals: Mapping[str, Total], as_of: datetime
) -> EntryOf:
    """What it takes to have some of the work on an alternative."""

    @cache
    def entry(name: str, done: frozenset[str]) -> EntryCost:
        return _entry(request, [work for work in works if work.name in done], totals[name], as_of)

    return entry


def _trade_off(name: str, scores: Scores, names: Sequence[str]) -> TradeOff:
    others = [other for other in names if other != name]
    found = []
    for key, score in scores[name].items():
        known = [scores[other][key].value for other in others if key in scores[other]]
        if known:
            found.append((key, score.value - sum(known) / len(known)))
    return TradeOff(
        alternative=name,
        better=tuple(
            sorted(((key, lead) for key, lead in found if lead >= LEADS_BY), key=lambda one: (-one[1], one[0]))
        ),
        worse=tuple(
            sorted(((key, lead) for key, lead in found if lead <= -LEADS_BY), key=lambda one: (one[1], one[0]))
        ),
    )
