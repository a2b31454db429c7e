"""A profile file: its keys, their forms and defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tonnage.comparison.user_files import Day, Link, Name, Names, Text
from tonnage.workload.file.fields import Flag, PositiveOrZero, Spelled, StrictModel, Words, refusal

Kind = Literal["platform", "framework"]
WorkloadKind = Literal["train", "serve", "batch", "tabular"]


class Evidence(StrictModel):
    """Where a value comes from. `read_on` None: it was not read there. `judgement`: ours, without a public source.

    `third_party`: somebody else's word about a vendor.
    """

    title: Text
    url: Link | None = None
    read_on: Day | None = None
    judgement: Flag = False
    third_party: Flag = False

    @property
    def verified(self) -> bool:
        """Whether the vendor's (or maker's) own words were read, on a day that is known."""
        return self.read_on is not None and not self.judgement and not self.third_party


class SourceEntry(Evidence):
    """A source of a profile file: it has an address, or it is a judgement."""

    @model_validator(mode="after")
    def _named(self) -> SourceEntry:
        if self.url is None and not self.judgement:
            raise refusal("a `url`", "or `judgement: true` where it is an opinion and no public source states it")
        return self


class CellEntry(StrictModel):
    value: Text
    sources: Names
    score: Annotated[int, Field(ge=1, le=5)] | None = None
    because: Text | None = None


class PeopleHours(StrictModel):
    """People-hours as a range with its likely value, and why."""

    low: PositiveOrZero
    likely: PositiveOrZero
    high: PositiveOrZero
    because: Text


class Scope(StrictModel):
    """What of the catalog the planner may use for it. Empty tuples: no limit. `computed` False: nothing is computed."""

    computed: bool = True
    platforms: Names = ()
    providers: Names = ()
    kinds: Annotated[tuple[WorkloadKind, ...], Field(strict=False)] = ()
    tabular_method: Literal["boosted-trees", "mlp"] | None = None
    why_not: Annotated[str, Field(max_length=2000), Spelled("text")] = ""


class AttestationEntry(StrictModel):
    status: Literal["attested", "conditional", "not_attested"]
    scope: Text
    sources: Names


class ProfileFile(StrictModel):
    """A profile file, NAME.yaml."""

    name: Name
    title: Text
    kind: Kind = "platform"
    based_on: Name | None = None
    about: Text
    tags: Names = ()
    plan: Scope | None = None
    setup_hours: PeopleHours | None = None
    operation_hours_per_month: PeopleHours | None = None
    sources: dict[Name, SourceEntry] = Field(default_factory=dict)
    aspects: dict[Name, CellEntry] = Field(default_factory=dict)
    risks: Words = ()
    suits: Words = ()
    levers: Words = ()
    practices: Words = ()
    try_it: Words = ()
    attestations: dict[Name, AttestationEntry] = Field(default_factory=dict)
    attestations_of_provider: Flag = False
