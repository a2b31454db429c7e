"""Rules that a team must meet, beside what each platform attests. What is not known never counts as met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal

from tonnage.comparison.profile_file import Evidence
from tonnage.comparison.profiles import Attestation, Profile
from tonnage.comparison.user_files import Name, Named, Names, Text, parse_entries, unknown
from tonnage.values import dataclass
from tonnage.workload.file.fields import StrictModel
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.yaml_lines import KeyPath

Answer = Literal["attested", "conditional", "not attested", "not known"]
WORST_FIRST: Final[tuple[Answer, ...]] = ("not attested", "not known", "conditional", "attested")
ASK: Final = "not known: ask the vendor"


class Standard(StrictModel):
    """A rule or attestation by its name."""

    name: Name
    title: Text
    also: Names = ()


class StandardsFile(StrictModel):
    standards: Named[Standard]


@lru_cache(maxsize=1)
def load_standards() -> Mapping[str, Standard]:
    """The packaged standards, by name."""
    text = files("tonnage.comparison").joinpath("data/standards.yaml").read_text("utf-8")
    entries, _ = parse_entries(text, StandardsFile, file="standards.yaml", page="docs/compare.md")
    return entries.standards


def standard_name(text: str, more: Iterable[str] = ()) -> str | None:
    """The standard that a text means, `more` (names that profiles use) among them; None where there is none.

    >>> standard_name("SOC 2"), standard_name("ISO/IEC 27001"), standard_name("hippa")
    ('soc2', 'iso27001', None)
    """
    said = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")
    for one in load_standards().values():
        if said in (one.name, *one.also) or said.replace("-", "") == one.name.replace("-", ""):
            return one.name
    return said if said in set(more) else None


def standard_title(name: str) -> str:
    """How it is written."""
    known = load_standards().get(name)
    return known.title if known else name


def rule_problems(stated: Sequence[str], profiles: Mapping[str, Profile], path: KeyPath) -> list[Problem]:
    """Rules that no table names: a typing error would else show as «not known» everywhere."""
    more = _named(profiles)
    known = [*load_standards(), *sorted(more - set(load_standards()))]
    return [unknown(path, "rule or attestation", one, known) for one in stated if standard_name(one, more) is None]


def standards_of(stated: Sequence[str], profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The names of the rules stated, each once."""
    more = _named(profiles)
    found = [standard_name(one, more) for one in stated]
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _named(profiles: Mapping[str, Profile]) -> set[str]:
    return {name for profile in profiles.values() for name in profile.attestations}


def provider_attestations(profiles: Mapping[str, Profile]) -> dict[str, Mapping[str, Attestation]]:
    """What each provider of machines attests: of the profile that is its machines and no other's."""
    out: dict[str, Mapping[str, Attestation]] = {}
    for profile in profiles.values():
        if profile.scope.platforms == ("vm",) and len(profile.scope.providers) == 1 and profile.attestations:
            out[profile.scope.providers[0]] = profile.attestations
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One rule on one alternative. `scope`: what is attested or on which condition; why not, where it is not known."""

    standard: str
    answer: Answer
    scope: str
    evidence: tuple[Evidence, ...]

    @property
    def met(self) -> bool | None:
        """None: not known."""
        return {"attested": True, "conditional": True, "not attested": False, "not known": None}[self.answer]

    @property
    def words(self) -> str:
        """The answer and what it holds for."""
        if self.answer == "not known":
            return ASK + (f" ({self.scope})" if self.scope else "")
        return f"{'on a condition' if self.answer == 'conditional' else self.answer}: {self.scope}"

    def describe(self) -> str:
        """The same with the rule's name."""
        return f"{standard_title(self.standard)} {self.words}"


def match_rules(
    profile: Profile,
    needs: Sequence[str],
    by_provider: Mapping[str, Mapping[str, Attestation]],
    providers: Sequence[str],
    stated: Mapping[str, str] | None = None,
) -> tuple[Match, ...]:
    """Each rule on one alternative. Where the profile relies on its providers' attestations, all of them must hold.

    `stated`: evidence that the user has, and says which; it comes first.
    """
    out = []
    for need in needs:
        if stated and need in stated:
            out.append(Match(standard=need, answer="attested", scope=f"you state: {stated[need]}", evidence=()))
            continue
        own = profile.attestations.get(need)
        if own is not None or not profile.attested_by_provider:
            out.append(_match(need, own))
            continue
        found = [(name, _match(need, by_provider.get(name, {}).get(need))) for name in providers]
        if not found:
            out.append(_match(need, None))
            continue
        name, worst = min(found, key=lambda one: (WORST_FIRST.index(one[1].answer), one[0]))
        scope = f"{name}: {worst.scope}" if worst.scope else f"of {name}"
        out.append(Match(standard=need, answer=worst.answer, scope=scope, evidence=worst.evidence))
    return tuple(out)


def _match(need: str, found: Attestation | None) -> Match:
    """What was not read at the vendor is unknown, whatever a third party says of it."""
    if found is None:
        return Match(standard=need, answer="not known", scope="", evidence=())
    if found.status != "not attested" and not any(one.verified for one in found.evidence):
        said = "only a third party says so, or the vendor's page was not read"
        return Match(standard=need, answer="not known", scope=said, evidence=found.evidence)
    return Match(standard=need, answer=found.status, scope=found.scope, evidence=found.evidence)


def all_met(matches: Sequence[Match]) -> bool | None:
    """True: every rule is met, maybe on a condition. False: one is not. None: one is not known and none is refused."""
    answers = [one.met for one in matches]
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplianceStanding:
    """The rules of a request, and how each alternative fares with each of them."""

    needs: tuple[str, ...]
    matches: Mapping[str, tuple[Match, ...]]  # by alternative, in the order of `needs`

    def meets(self, alternative: str) -> bool | None:
        """None: not known. Without a rule everything meets all of them."""
        return all_met(self.matches[alternative])

    def allowed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that are known to meet every rule."""
        return tuple(name for name in names if self.meets(name) is True)

    def why_not(self, alternative: str) -> str:
        """The rules that keep an alternative out, in words; "" where none does."""
        return "; ".join(match.describe() for match in self.matches[alternative] if match.met is not True)

    def describe(self, alternative: str) -> str:
        """All rules of one alternative, in words."""
        return "; ".join(match.describe() for match in self.matches[alternative]) or "no rule is stated"

    @property
    def titles(self) -> str:
        """The rules, as they are written."""
        return ", ".join(standard_title(name) for name in self.needs)
