"""What decision rules may ask for: facts of the work, the team, the user's own answers, and computed figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage.comparison.compliance import ComplianceStanding
from tonnage.comparison.computed import Total, WorkDemand
from tonnage.comparison.decision import Fact, Value
from tonnage.comparison.request import CompareRequest
from tonnage.comparison.rules import Rules
from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import ServeJob, TrainJob


def gather_facts(
    request: CompareRequest,
    rules: Rules,
    works: Sequence[WorkDemand],
    totals: Mapping[str, Total],
    standing: ComplianceStanding,
) -> dict[str, Fact]:
    """Every fact, with its place. WorkloadError where a need is given that the rules do not ask for."""
    file = request.file or "the compare file"
    for name in request.needs:
        if name not in rules.needs:
            listed = ", ".join(rules.needs) or "none"
            hint = did_you_mean(nearest(name, rules.needs, count=1), f"rule set {rules.name} asks for: {listed}")
            raise WorkloadError("is not asked for by the rule set", hint=hint, file=request.file, key=f"needs.{name}")
    out = {name: _stated(request.needs.get(name), f"needs.{name}", file) for name in rules.needs}
    team = _team_facts(request, file, standing)
    return out | _work_facts(works) | team | _rule_facts(totals, standing) | _computed_facts(request, totals, standing)


def _stated(value: Value | None, key: str, file: str) -> Fact:
    return Fact(value=value, origin=f"{file}: {key}" if value is not None else f"not stated: {key} of {file}")


def _work_facts(works: Sequence[WorkDemand]) -> dict[str, Fact]:
    names = "; ".join(one.workload.file or one.name for one in works)
    jobs = [one.workload.job for one in works]
    kinds = tuple(dict.fromkeys(one.workload.kind for one in works))
    requests = sum(one.requests_per_month or 0.0 for one in works)
    tokens = sum(_tokens(one) for one in works)
    run = sum(one.jobs_per_month or 0.0 for one in works)
    trains = any(isinstance(job, TrainJob) for job in jobs)
    values: dict[str, Value] = {
        "kinds": kinds,
        "trains": trains,
        "trains_own_data": trains,
        "serves": "serve" in kinds,
        "requests_per_month": requests,
        "tokens_per_month": tokens,
        "jobs_per_month": run,
        "has_deadline": any(one.workload.constraints.deadline_s is not None for one in works),
    }
    return {name: Fact(value=value, origin=names) for name, value in values.items()}


def _tokens(work: WorkDemand) -> float:
    job = work.workload.job
    if not isinstance(job, ServeJob) or work.requests_per_month is None:
        return 0.0
    each = job.requests.input_tokens.mean + (job.requests.output_tokens.mean if job.requests.output_tokens else 0.0)
    return work.requests_per_month * each


def _team_facts(request: CompareRequest, file: str, standing: ComplianceStanding) -> dict[str, Fact]:
    given = request.organisation
    values: dict[str, Value | None] = {
        "employees": given.employees,
        "team_size": given.team_size,
        "ml_expertise": given.ml_expertise,
        "ops_expertise": given.ops_expertise,
        "compliance": standing.needs,
    }
    return {name: _stated(value, f"organisation.{name}", file) for name, value in values.items()}


def _rule_facts(totals: Mapping[str, Total], standing: ComplianceStanding) -> dict[str, Fact]:
    """`meets_compliance.NAME` and `.any`: yes, no, or not known; the origin names each rule and its evidence."""
    out = {
        f"meets_compliance.{name}": Fact(value=standing.meets(name), origin=f"attestations of {name}'s profile: "
                                         f"{standing.describe(name)}")
        for name in totals
    }  # fmt: skip
    answers = {name: standing.meets(name) for name, total in totals.items() if total.can_do}
    if any(answer is True for answer in answers.values()):
        value: bool | None = True
    else:
        value = None if any(answer is None for answer in answers.values()) else False
    said = "; ".join(f"{name}: {standing.describe(name)}" for name in answers) if standing.needs else ""
    out["meets_compliance.any"] = Fact(value=value, origin=said or "no rule is stated (organisation.compliance)")
    return out


def _computed_facts(
    request: CompareRequest, totals: Mapping[str, Total], standing: ComplianceStanding
) -> dict[str, Fact]:
    origin = "computed by the planner at the stated volume"
    out: dict[str, Fact] = {}
    for name, total in totals.items():
        out[f"can_do.{name}"] = Fact(value=total.can_do, origin=origin)
        figures = {"usd_per_month": total.usd_per_month, "time_s": total.time_s, "setup_usd": total.setup_usd,
                   "latency_p95_s": total.latency_p95_s}  # fmt: skip
        out |= {f"{key}.{name}": Fact(value=_of(figure), origin=origin) for key, figure in figures.items()}
    able = cheapest_first(totals, standing)
    if standing.needs:
        origin += f", of those known to meet {standing.titles}"
    managed = [name for name in able if is_managed(request, name)]
    chosen = {"cheapest": able[:1], "second": able[1:2], "managed": managed[:1]}
    for word, names in chosen.items():
        cost = _of(totals[names[0]].usd_per_month) if names else None
        said = f"{origin}: {names[0]}" if names else origin
        out[f"usd_per_month.{word}"] = Fact(value=cost, origin=said)
    any_able = any(total.can_do for total in totals.values())
    out["can_do.any"] = Fact(value=any_able, origin="computed by the planner at the stated volume")
    out["can_do.count"] = Fact(value=float(len(able)), origin=origin)
    tags = {"cheapest_managed": "managed", "cheapest_token_api": "token-api"}
    for name, tag in tags.items():
        value = bool(able) and has_tag(request, able[0], tag)
        out[f"can_do.{name}"] = Fact(value=value, origin=f"{origin}; tags of its profile")
    return out


def cheapest_first(totals: Mapping[str, Total], standing: ComplianceStanding) -> list[str]:
    """Those that can do all the work as asked and are known to meet every rule, by cost a month with people."""
    costs = [(cost.value, name) for name, total in totals.items() if (cost := total.usd_per_month) is not None]
    return list(standing.allowed(name for _, name in sorted(costs) if totals[name].as_asked))


def is_managed(request: CompareRequest, name: str) -> bool:
    """Whether an alternative's profile is tagged as managed."""
    return has_tag(request, name, "managed")


def has_tag(request: CompareRequest, name: str, tag: str) -> bool:
    """Whether the profile of an alternative has a tag."""
    return next(tag in alternative.profile.tags for alternative in request.alternatives if alternative.name == name)


def _of(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value
