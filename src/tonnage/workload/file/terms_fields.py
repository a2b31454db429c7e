"""The sections every kind shares: what a plan must hold, how it may be bought, and who runs it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tonnage.catalog.market import Purchase
from tonnage.workload.file.fields import (
    Count,
    Door,
    Duration,
    DurationOrZero,
    Flag,
    Percent,
    PositiveOrZero,
    Spelled,
    Usd,
    When,
    Word,
    Words,
    as_names,
    key,
)

Purchases = Annotated[
    tuple[Purchase, ...],
    BeforeValidator(as_names),
    Spelled("list of `on_demand`, `spot`, `reserved_1y`, `reserved_3y`"),
]
Discounts = Annotated[dict[str, Percent], Field(max_length=100), Spelled("provider: percent")]


class ConstraintFields(Door):
    """What a plan must hold. A key left out sets no limit."""

    deadline: When | None = key(
        "When the work must be done: so long after the start, or an instant with its time zone.",
        default=None,
        shown="none",
        example="24h",
    )
    budget_usd: Usd | None = key(
        "Most it may cost: in all; for a service, per month.",
        default=None,
        shown="none",
        unit="USD",
        example="500",
    )
    providers: Words = key("Providers that may be used.", default=(), shown="every provider", example="[aws, gcp]")
    regions: Words = key(
        "Regions that may be used, as the provider names them.",
        default=(),
        shown="every region",
        example="[us-east-1, us-central1]",
    )
    gpus: Words = key(
        "GPUs that may be used: `H100`, `H100:8`, `A100-80GB:1..8`, `24GB..80GB`; any one may match.",
        default=(),
        shown="every GPU",
        example="[A100-80GB, H100]",
    )
    interruptible: Flag | None = key(
        "Whether the work may be cut short and resumed; `false` rules out spot.",
        default=None,
        shown="true; for a service false, unless `buy` names spot",
        example="false",
    )
    residency: Words = key(
        "Areas the data must stay in: us, ca, sa, eu, uk, ch, me, af, ap.",
        default=(),
        shown="anywhere",
        example="eu",
    )
    max_gpus: Count | None = key("Most GPUs at once.", default=None, shown="no limit", unit="GPUs", example="64")
    hold: Flag = key(
        "Whether deadline, budget, memory and promised latency must hold at the far end of the 80 % interval, not "
        "only at the expected figure.",
        default=False,
        example="true",
    )
    max_nodes: Count | None = key(
        "Most machines at once.",
        default=None,
        shown="8; for a service or a batch 64",
        unit="machines",
        example="4",
    )


class BuyFields(Door):
    """How it may be bought. Give `purchases`, or switch single ways on and off."""

    purchases: Purchases | None = key(
        "Exactly the ways to buy that may be used.",
        default=None,
        shown="on_demand and spot",
        example="[on_demand, reserved_1y]",
    )
    on_demand: Flag | None = key("By the hour, no commitment.", default=None, shown="true", example="true")
    spot: Flag | None = key(
        "Spare capacity that may be taken back; out where `interruptible` is false.",
        default=None,
        shown="true, where interruptible",
        example="false",
    )
    reserved_1y: Flag | None = key("Committed for one year.", default=None, shown="false", example="true")
    reserved_3y: Flag | None = key("Committed for three years.", default=None, shown="false", example="true")
    interruptions_per_hour: PositiveOrZero | None = key(
        "How often one spot machine is taken back.",
        default=None,
        shown="an assumption, stated in the plan",
        unit="per machine and hour",
        example="0.05",
    )
    checkpoint_interval: Duration | None = key(
        "Time between checkpoints.", default=None, shown="from the interruption rate", example="30m"
    )
    startup: DurationOrZero | None = key(
        "From asking for a machine to useful work.",
        default=None,
        shown="an assumption, stated in the plan",
        example="10m",
    )
    discounts: Discounts = key(
        "Percent off list price that you have agreed with a provider.",
        default=dict,
        shown="none",
        unit="percent",
        example="{aws: 12}",
    )


class TeamFields(Door):
    """Who runs it; used where platforms are compared."""

    size: Count | None = key("People on the team.", default=None, unit="people", example="6")
    ml_expertise: Literal["none", "some", "strong"] | None = key(
        "How much of machine learning the team knows.", default=None, example="some"
    )
    compliance: Words = key("Rules the platform must meet.", default=(), shown="none", example="[hipaa, soc2]")


class SharedFields(Door):
    """Keys at the top of every workload file."""

    name: Word | None = key(
        "Name of the workload in reports.", default=None, shown="the file's name", example="bert-finetune"
    )
    constraints: ConstraintFields = key("What a plan must hold.", default=ConstraintFields, shown="no limits")
    buy: BuyFields = key("How it may be bought.", default=BuyFields, shown="on demand, and spot")
    team: TeamFields = key("Who runs it.", default=TeamFields, shown="nothing stated")
