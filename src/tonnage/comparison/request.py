"""The compare file: what is compared, for which work and team, by which weights and rules, and the migration in
question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.compliance import provider_attestations, rule_problems, standards_of
from tonnage.comparison.criteria import MONEY_CRITERIA, Criterion, load_criteria, weight_problems
from tonnage.comparison.owned import Owned
from tonnage.comparison.profile_file import PeopleHours
from tonnage.comparison.profiles import Attestation, Profile, load_profiles
from tonnage.comparison.user_files import Day, Name, Text, UsdPerMonth, parse_entries, unknown
from tonnage.values import dataclass
from tonnage.workload.file.fields import (
    Count,
    Flag,
    Positive,
    PositiveOrZero,
    Spelled,
    StrictModel,
    Word,
    Words,
    as_names,
)
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text

PAGE: Final = "docs/compare.md"
HORIZONS: Final = ("short", "medium", "long")
Expertise = Literal["none", "some", "strong"]
Horizon = Literal["short", "medium", "long"]
Used = Literal["tracking", "tables", "dashboards", "runbooks"]
Need = bool | float | int | str
Fraction = Annotated[float, Field(gt=0, le=1)]
Pue = Annotated[float, Field(ge=1, le=5)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One alternative of a comparison: a profile, maybe narrowed to some machines."""

    name: str
    title: str
    profile: Profile
    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    setup_hours: PeopleHours | None = None
    operation_hours_per_month: PeopleHours | None = None
    owned: Owned | None = None
    attests: Mapping[str, str] = field(default_factory=dict)  # rules that the user has evidence for: which

    @property
    def clouds(self) -> frozenset[str] | None:
        """Whose machines and storage it runs on; None: any cloud's."""
        if self.owned is not None or "on-premise" in self.profile.tags:
            return frozenset({"on-premise"})
        if self.profile.scope.platforms == ("bedrock",):
            return frozenset({"aws"})
        return frozenset(self.providers or self.profile.scope.providers) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedWork:
    """One workload file and how often its job runs. `jobs_per_month` None: a service, whose file holds its rate."""

    file: Path
    name: str | None
    jobs_per_month: float | None


class Organisation(StrictModel):
    """Who decides. None and empty: not said."""

    employees: Count | None = None
    team_size: Count | None = None
    ml_expertise: Expertise | None = None
    ops_expertise: Expertise | None = None
    compliance: Words = ()
    usd_per_hour: Positive | None = None


class Stated(StrictModel):
    """What the compare file says of power (`carbon:`); None: not said."""

    grid_g_per_kwh: Annotated[float, Field(ge=0, le=2000)] | None = None
    pue: Pue | None = None
    power_fraction: Fraction | None = None


class Move(StrictModel):
    """A migration: from, to, the first working day, and how many people do it for how many hours a day.

    `data_tb`, `pipelines`: what moves beside the workloads; None: not stated, not counted. `uses`: what is used today
    and has to be there again; None: all of it.
    """

    origin: Annotated[Name, Field(alias="from")]
    target: Annotated[Name, Field(alias="to")]
    start: Day | None = None
    people: Annotated[int, Field(ge=1, le=100)] = 1
    hours_per_day: Annotated[float, Field(gt=0, le=24)] = 6.0
    data_tb: PositiveOrZero | None = None
    pipelines: Annotated[int, Field(ge=0, le=10_000)] | None = None
    uses: Annotated[tuple[Used, ...], BeforeValidator(as_names), Field(strict=False)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """One compare file, read and checked."""

    title: str
    file: str | None
    folder: Path
    alternatives: tuple[Alternative, ...]
    works: tuple[ComparedWork, ...]
    organisation: Organisation
    weights: Mapping[str, float]
    weights_given: frozenset[str]
    worth: Mapping[str, float]  # criterion -> dollars a month that one point of it is worth to the reader
    horizon_weeks: Mapping[str, float]
    decide_over: Horizon
    volume_factors: tuple[float, ...]
    rules: str
    needs: Mapping[str, Need]
    move: Move | None
    draws: int
    seed: int
    power: Stated
    attestations: Mapping[str, Mapping[str, Attestation]]  # of providers of machines, by provider


class AlternativeEntry(StrictModel):
    name: Name
    profile: Name | None = None
    title: Text | None = None
    gpus: Words = ()
    providers: Words = ()
    machines: Words = ()
    setup_hours: PeopleHours | None = None
    operation_hours_per_month: PeopleHours | None = None
    owned: Owned | None = None
    attests: dict[Text, Text] = Field(default_factory=dict)


def _as_alternative(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class WorkEntry(StrictModel):
    file: Word
    name: Name | None = None
    jobs_per_month: Positive | None = None


class HorizonEntry(StrictModel):
    short: Positive = 2.0
    medium: Positive = 13.0
    long: Positive = 52.0


class RequestFile(StrictModel):
    """A compare file, NAME.tonnage.yaml with `kind: compare`."""

    kind: Literal["compare"]
    title: Text
    compare: Annotated[
        list[Annotated[AlternativeEntry, BeforeValidator(_as_alternative)]], Field(min_length=2, max_length=12)
    ]
    workloads: Annotated[list[WorkEntry], Field(min_length=1, max_length=12)]
    profiles: Words = ()
    organisation: Organisation = Field(default_factory=Organisation)
    weights: dict[str, Annotated[float, Spelled("number, 0 or more")]] = Field(default_factory=dict)
    only_these_weights: Flag = False
    worth: dict[str, UsdPerMonth] = Field(default_factory=dict)
    horizons_weeks: HorizonEntry = Field(default_factory=HorizonEntry)
    decide_over: Horizon = "long"
    volume_factors: Annotated[list[Positive], Field(min_length=1, max_length=9)] = Field(
        default_factory=lambda: [0.1, 1.0, 10.0]
    )
    rules: Word = "computed-cost"
    needs: dict[Name, Flag | PositiveOrZero | Word] = Field(default_factory=dict)
    migration: Move | None = None
    carbon: Stated = Field(default_factory=Stated)
    draws: Annotated[int, Field(ge=100, le=100_000)] = 1000
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0


def load_request(path: Path | str, *, profile_folders: Sequence[Path] = ()) -> CompareRequest:
    """The compare file at `path`; WorkloadError (file, line, key, hint) for whatever is wrong with it."""
    path = Path(path)
    return parse_request(load_text(path), file=str(path), folder=path.parent, profile_folders=profile_folders)


def parse_request(text: str, *, file: str | None, folder: Path, profile_folders: Sequence[Path] = ()) -> CompareRequest:
    """The compare file in a text; paths in it start from `folder`."""
    entries, document = parse_entries(text, RequestFile, file=file, page=PAGE)
    criteria = load_criteria()
    profiles = load_profiles([*(folder / name for name in entries.profiles), *profile_folders], criteria)
    raise_problems(_problems(entries, profiles, criteria), document)
    return _freeze(entries, profiles, criteria, file=file, folder=folder)


def _problems(entries: RequestFile, profiles: Mapping[str, Profile], criteria: Sequence[Criterion]) -> list[Problem]:
    found: list[Problem] = []
    names = [one.name for one in entries.compare]
    for place, one in enumerate(entries.compare):
        wanted = one.profile or one.name
        if wanted not in profiles:
            found.append(unknown(("compare", place), "platform profile", wanted, sorted(profiles)))
        for key in ("setup_hours", "operation_hours_per_month"):
            hours: PeopleHours | None = getattr(one, key)
            if hours and not hours.low <= hours.likely <= hours.high:
                found.append(Problem(("compare", place, key), "is not low <= likely <= high", "order the three"))
        found += rule_problems(list(one.attests), profiles, ("compare", place, "attests"))
        if one.name in names[:place]:
            found.append(Problem(("compare", place), f"'{one.name}' is compared twice", "give one another `name`"))
    found += rule_problems(entries.organisation.compliance, profiles, ("organisation", "compliance"))
    found += weight_problems(entries.weights, criteria)
    known = {criterion.key: criterion for criterion in criteria}
    for key in entries.worth:
        path = ("worth", key)
        if key not in known:
            found.append(unknown(path, "criterion", key, known))
        elif not known[key].scored:
            found.append(Problem(path, "has a worth, but this criterion is not scored", "leave it out"))
        elif key in MONEY_CRITERIA:
            found.append(Problem(path, "is money already", "it counts as it is; leave it out"))
    if entries.only_these_weights and not any(weight > 0 for weight in entries.weights.values()):
        found.append(Problem(("weights",), "no weight is above 0", "give at least one criterion a weight"))
    if entries.migration:
        for key, end in (("from", entries.migration.origin), ("to", entries.migration.target)):
            if end not in names:
                found.append(unknown(("migration", key), "alternative compared here", end, names))
        if entries.migration.origin == entries.migration.target:
            found.append(Problem(("migration", "to"), "is where it comes from", "name another"))
    span = entries.horizons_weeks
    if not span.short < span.medium < span.long:
        found.append(Problem(("horizons_weeks",), "is not short < medium < long", "order the three"))
    return found


def _freeze(
    entries: RequestFile,
    profiles: Mapping[str, Profile],
    criteria: Sequence[Criterion],
    *,
    file: str | None,
    folder: Path,
) -> CompareRequest:
    given = entries.organisation
    default = {criterion.key: criterion.weight for criterion in criteria if criterion.scored}
    base = dict.fromkeys(default, 0.0) if entries.only_these_weights else default
    return CompareRequest(
        title=entries.title,
        file=file,
        folder=folder,
        alternatives=tuple(_alternative(one, profiles) for one in entries.compare),
        works=tuple(
            ComparedWork(file=Path(normpath(folder / one.file)), name=one.name, jobs_per_month=one.jobs_per_month)
            for one in entries.workloads
        ),
        organisation=given.model_copy(update={"compliance": standards_of(given.compliance, profiles)}),
        weights={**base, **{key: weight for key, weight in entries.weights.items() if key in base}},
        weights_given=frozenset(entries.weights),
        worth=entries.worth,
        horizon_weeks={name: getattr(entries.horizons_weeks, name) for name in HORIZONS},
        decide_over=entries.decide_over,
        volume_factors=tuple(sorted({*entries.volume_factors, 1.0})),
        rules=entries.rules,
        needs=entries.needs,
        move=entries.migration,
        draws=entries.draws,
        seed=entries.seed,
        power=entries.carbon,
        attestations=provider_attestations(profiles),
    )


def _alternative(entry: AlternativeEntry, profiles: Mapping[str, Profile]) -> Alternative:
    profile = profiles[entry.profile or entry.name]
    return Alternative(
        name=entry.name,
        title=entry.title or profile.title,
        profile=profile,
        gpus=entry.gpus,
        providers=entry.providers,
        machines=entry.machines,
        setup_hours=entry.setup_hours or profile.setup_hours,
        operation_hours_per_month=entry.operation_hours_per_month or profile.operation_hours_per_month,
        owned=entry.owned,
        attests={standards_of([rule], profiles)[0]: said for rule, said in entry.attests.items()},
    )
