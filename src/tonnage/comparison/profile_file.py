"""A profile file at the door: its keys, their forms and defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tonnage.comparison.door import Day, Link, Name, Names, Text
from tonnage.workload.file.fields import Flag, PositiveOrZero, StrictModel, Words, refusal

Kind = Literal["platform", "framework"]
WorkloadKind = Literal["train", "serve", "batch", "tabular"]


class SourceEntry(StrictModel):
    title: Text
    url: Link | None = None
    read_on: Day | None = None
    judgement: Flag = False
    third_party: Flag = False

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


class HoursEntry(StrictModel):
    low: PositiveOrZero
    likely: PositiveOrZero
    high: PositiveOrZero
    because: Text


class ScopeEntry(StrictModel):
    computed: bool = True
    platforms: Names = ()
    providers: Names = ()
    kinds: Annotated[tuple[WorkloadKind, ...], Field(strict=False)] = ()
    tabular_method: Literal["boosted-trees", "mlp"] | None = None
    why_not: Text | None = None


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
    plan: ScopeEntry | None = None
    setup_hours: HoursEntry | None = None
    operation_hours_per_month: HoursEntry | None = None
    sources: dict[Name, SourceEntry] = Field(default_factory=dict)
    aspects: dict[Name, CellEntry] = Field(default_factory=dict)
    risks: Words = ()
    suits: Words = ()
    levers: Words = ()
    practices: Words = ()
    try_it: Words = ()
    attestations: dict[Name, AttestationEntry] = Field(default_factory=dict)
    attestations_of_provider: Flag = False
