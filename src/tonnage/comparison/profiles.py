"""Platform and framework profiles: per criterion a value, its evidence and, where the rubric is fair, a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from tonnage.comparison.criteria import PAGE, Criterion, load_criteria
from tonnage.comparison.profile_file import (
    AttestationEntry,
    CellEntry,
    Evidence,
    Kind,
    PeopleHours,
    ProfileFile,
    Scope,
    SourceEntry,
)
from tonnage.comparison.user_files import parse_entries, unknown
from tonnage.errors import UnknownName, WorkloadError, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text
from tonnage.workload.file.yaml_lines import YamlDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """What a vendor attests. `scope`: for what, or on which condition."""

    status: Literal["attested", "conditional", "not attested"]
    scope: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One criterion of one profile. `score` None: not scored, because no rubric is fair or nothing is known."""

    value: str
    evidence: tuple[Evidence, ...]
    score: int | None = None
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One platform or framework."""

    name: str
    title: str
    kind: Kind
    about: str
    tags: tuple[str, ...]
    scope: Scope
    setup_hours: PeopleHours | None
    operation_hours_per_month: PeopleHours | None
    cells: Mapping[str, Cell]
    risks: tuple[str, ...]
    suits: tuple[str, ...] = ()
    levers: tuple[str, ...] = ()
    practices: tuple[str, ...] = ()
    try_it: tuple[str, ...] = ()
    attestations: Mapping[str, Attestation] = field(default_factory=dict)
    attested_by_provider: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    entries: ProfileFile
    document: YamlDocument


def load_profiles(folders: Sequence[Path] = (), criteria: Sequence[Criterion] | None = None) -> dict[str, Profile]:
    """The packaged profiles and those of `folders` (*.yaml), by name. WorkloadError on whatever is wrong with one."""
    criteria = load_criteria() if criteria is None else criteria
    read = list(_packaged())
    for folder in folders:
        if not folder.is_dir():
            raise WorkloadError("no such folder of profiles", hint=f"{PAGE} says what it holds", file=str(folder))
        read += [_read(load_text(path), str(path)) for path in sorted(folder.glob("*.yaml"))]
    return _join(read, criteria)


def parse_profiles(texts: Mapping[str, str], criteria: Sequence[Criterion] | None = None) -> dict[str, Profile]:
    """The profiles in `texts` (file name -> text) alone."""
    return _join([_read(text, file) for file, text in texts.items()], load_criteria() if criteria is None else criteria)


def find_profile(name: str, profiles: Mapping[str, Profile]) -> Profile:
    """The profile of that name; UnknownName, with the nearest, else."""
    if name in profiles:
        return profiles[name]
    close = nearest(name, profiles)
    hint = did_you_mean(close, f"known: {', '.join(sorted(profiles))}; {PAGE} says how to add one")
    raise UnknownName(f"no platform profile is named '{name}'", suggestions=close, hint=hint)


@lru_cache(maxsize=1)
def _packaged() -> tuple[_Read, ...]:
    folder = files("tonnage.comparison").joinpath("data/platforms")
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda one: one.name)
    return tuple(_read(entry.read_text("utf-8"), f"platforms/{entry.name}") for entry in found)


def _read(text: str, file: str) -> _Read:
    return _Read(*parse_entries(text, ProfileFile, file=file, page=PAGE))


def _join(read: Iterable[_Read], criteria: Sequence[Criterion]) -> dict[str, Profile]:
    by_name: dict[str, _Read] = {}
    for one in read:
        if one.entries.name in by_name:
            first = by_name[one.entries.name].document.file
            said = f"a second profile is named '{one.entries.name}'; the first is {first}"
            raise_problems([Problem(("name",), said, "give it a name of its own")], one.document)
        by_name[one.entries.name] = one
    for one in by_name.values():
        raise_problems(
            _problems(one.entries, by_name, {criterion.key: criterion for criterion in criteria}), one.document
        )
    return {name: _freeze(name, by_name) for name in sorted(by_name)}


def _problems(entries: ProfileFile, known: Mapping[str, _Read], criteria: Mapping[str, Criterion]) -> list[Problem]:
    found = []
    if entries.based_on is not None:
        base = known.get(entries.based_on)
        if base is None:
            found.append(unknown(("based_on",), "profile", entries.based_on, sorted(known)))
        elif base.entries.based_on is not None:
            found.append(Problem(("based_on",), f"'{entries.based_on}' is itself based on another", "name that one"))
    for name, cell in entries.aspects.items():
        path = ("aspects", name)
        if name not in criteria:
            found.append(unknown(path, "criterion", name, criteria))
            continue
        found += _source_problems(path, cell.sources, entries.sources)
        found += _score_problems(path, cell, criteria[name])
    for name, one in entries.attestations.items():
        found += _source_problems(("attestations", name), one.sources, entries.sources)
    for key in ("setup_hours", "operation_hours_per_month"):
        hours: PeopleHours | None = getattr(entries, key)
        if hours and not hours.low <= hours.likely <= hours.high:
            found.append(Problem((key,), "is not low <= likely <= high", "order the three"))
    return found


def _source_problems(path: tuple[str, ...], named: Sequence[str], known: Mapping[str, SourceEntry]) -> list[Problem]:
    where = (*path, "sources")
    if not named:
        return [Problem(where, "names no source", "every value says where it comes from")]
    return [unknown(where, "source of this file", source, known) for source in named if source not in known]


def _score_problems(path: tuple[str, ...], cell: CellEntry, criterion: Criterion) -> list[Problem]:
    if cell.score is None:
        return []
    if criterion.measure:
        return [Problem((*path, "score"), f"is given, but it is computed from {criterion.measure}", "leave it out")]
    if not criterion.rubric:
        return [Problem((*path, "score"), "is given, but this criterion has no rubric", "leave it out")]
    if cell.because is None:
        return [Problem((*path, "score"), "has no `because`", "say which words of the rubric it meets")]
    return []


def _freeze(name: str, known: Mapping[str, _Read]) -> Profile:
    entries = known[name].entries
    own = {key: _cell(cell, entries.sources) for key, cell in entries.aspects.items()}
    base = _freeze(entries.based_on, known) if entries.based_on else None
    unsaid = Scope(computed=False, why_not="the profile does not say which offers are its own")
    profile = Profile(
        name=entries.name,
        title=entries.title,
        kind=entries.kind,
        about=entries.about,
        tags=entries.tags,
        scope=entries.plan or unsaid,
        setup_hours=entries.setup_hours,
        operation_hours_per_month=entries.operation_hours_per_month,
        cells=own,
        risks=entries.risks,
        suits=entries.suits,
        levers=entries.levers,
        practices=entries.practices,
        try_it=entries.try_it,
        attestations={key: _attestation(one, entries.sources) for key, one in entries.attestations.items()},
        attested_by_provider=entries.attestations_of_provider,
    )
    return profile if base is None else _inherit(profile, base, entries)


def _inherit(profile: Profile, base: Profile, entries: ProfileFile) -> Profile:
    """What the file leaves out is its base's."""
    return replace(
        profile,
        tags=profile.tags or base.tags,
        scope=base.scope if entries.plan is None else profile.scope,
        setup_hours=profile.setup_hours or base.setup_hours,
        operation_hours_per_month=profile.operation_hours_per_month or base.operation_hours_per_month,
        cells={**base.cells, **profile.cells},
        risks=(*profile.risks, *base.risks),
        suits=profile.suits or base.suits,
        levers=profile.levers or base.levers,
        practices=profile.practices or base.practices,
        try_it=profile.try_it or base.try_it,
        attestations={**base.attestations, **profile.attestations},
        attested_by_provider=profile.attested_by_provider or base.attested_by_provider,
    )


def _cell(entry: CellEntry, sources: Mapping[str, SourceEntry]) -> Cell:
    evidence = _evidence(entry.sources, sources)
    return Cell(value=entry.value, evidence=evidence, score=entry.score, because=entry.because or "")


def _attestation(entry: AttestationEntry, sources: Mapping[str, SourceEntry]) -> Attestation:
    status: Literal["attested", "conditional", "not attested"]
    status = "not attested" if entry.status == "not_attested" else entry.status
    return Attestation(status=status, scope=entry.scope, evidence=_evidence(entry.sources, sources))


def _evidence(names: Sequence[str], sources: Mapping[str, SourceEntry]) -> tuple[Evidence, ...]:
    return tuple(sources[name] for name in names)
