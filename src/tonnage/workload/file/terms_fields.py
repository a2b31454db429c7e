"""The sections every kind shares: what a plan must hold, how it may be bought, and who runs it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tonnage.catalog.market import Platform, Purchase
from tonnage.workload.file.fields import (
    Count,
    Duration,
    DurationOrZero,
    Flag,
    Positive,
    PositiveOrZero,
    Section,
    Spelled,
    StrictModel,
    Usd,
    When,
    Word,
    Words,
    as_names,
    key,
)
from tonnage.workload.file.money_fields import (
    Committed,
    DataPlaceFields,
    Discounts,
    OwnPrices,
    PlatformHours,
    Schedule,
)
from tonnage.workload.file.quota_fields import QuotaFields, as_quotas
from tonnage.workload.jobs import Risk

Purchases = Annotated[
    tuple[Purchase, ...],
    BeforeValidator(as_names),
    Spelled("list of `on_demand`, `spot`, `reserved_1y`, `reserved_3y`"),
]
Platforms = Annotated[
    tuple[Platform, ...],
    BeforeValidator(as_names),
    Spelled("list of `vm`, `databricks`, `sagemaker`, `vertex`, `bedrock`"),
]


Risks = Annotated[
    tuple[Risk, ...],
    BeforeValidator(as_names),
    Spelled("list of `memory`, `deadline`, `budget`, `latency`"),
]


class ConstraintFields(StrictModel):
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
    platforms: Platforms = key(
        "Platforms that may be used: `vm`, `databricks`, `sagemaker`, `vertex`, `bedrock`.",
        default=(),
        shown="every platform",
        example="[vm, databricks]",
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
        "Whether deadline, budget and promised latency must hold at the far end of the 80 % interval, not only at the "
        "expected figure. Memory always must, unless `accept_risk` names it.",
        default=False,
        example="true",
    )
    accept_risk: Risks = key(
        "What need hold on its expected figure only: `memory`, and with `hold` also `deadline`, `budget`, `latency`.",
        default=(),
        shown="none",
        example="memory",
    )
    trust: Literal["dated", "any"] = key(
        "Which prices may win: `dated` ones, younger than --max-price-age, like those of their kind and of a data "
        "centre; or `any`. The others are ranked after them.",
        default="dated",
        example="any",
    )
    exclude: Words = key(
        "What is ruled out: `community` hosts, `undated` prices, `arm64` hosts, `rocm` devices, a provider, a GPU, an "
        "instance family (`p5`, `aws/p5`, `Standard_ND*`).",
        default=(),
        shown="nothing",
        example="[community, arm64, aws/p3]",
    )
    quota: Annotated[
        list[Section[QuotaFields]], BeforeValidator(as_quotas), Spelled("list of mappings, see Quotas")
    ] = key(
        "What the account may run at once; a file's name stands for `{file: ...}`.",
        default=list,
        shown="no limit known",
        example="[{provider: aws, family: p5, vcpus: 192}]",
    )
    max_nodes: Count | None = key(
        "Most machines at once.",
        default=None,
        shown="8; for a batch 64; for a service no limit",
        unit="machines",
        example="4",
    )


class BuyFields(StrictModel):
    """How it may be bought. Give `purchases`, or switch single ways on and off."""

    purchases: Purchases | None = key(
        "Exactly the ways to buy that may be used, on every platform; tokens count as `on_demand`.",
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
        "Percent off list price that you have agreed: with a provider or platform, for a family or a SKU of it "
        "(`*` stands for anything). The most specific one counts, alone.",
        default=dict,
        shown="none",
        unit="percent",
        example="{aws: 12, aws/p5: 25, databricks/Jobs Compute: 10}",
    )
    committed_usd: Committed = key(
        "Spend with a provider that is paid anyway, free for this job (for a service: a month of it).",
        default=dict,
        shown="none",
        unit="USD",
        example="{aws: 500}",
    )
    schedule: Section[Schedule] | None = key(
        "Machines run only at set hours.", default=None, shown="around the clock", example="{hours_per_day: 8, ...}"
    )
    idle: DurationOrZero = key(
        "Machines stay on, and are paid, so long after the work (waiting for the next job).",
        default=0.0,
        shown="`0s`",
        example="10m",
    )
    reserved_utilization: Annotated[float, Field(gt=0, le=1), Spelled("number above 0, to 1")] | None = key(
        "Share of the committed hours that some work uses; a job then bears its part of the rest. For a service the "
        "whole month is paid.",
        default=None,
        shown="a job pays the whole term",
        example="0.8",
    )
    reserved_owned: Flag = key(
        "Whether the reservations exist already: a job then pays only for the hours it uses.",
        default=False,
        example="true",
    )
    dbu_sku: Literal["Jobs Compute", "All-Purpose Compute"] = key(
        "The Databricks product that a job's cluster is billed as.", default="Jobs Compute", example="Jobs Compute"
    )
    disk_gb: PositiveOrZero = key(
        "Block storage of each machine; priced by `prices`.", default=0.0, unit="GB", example="200"
    )
    prices: Section[OwnPrices] = key("Prices the catalog has no source for.", default=OwnPrices, shown="gaps, stated")
    token_models: Words = key(
        "Models of token APIs that would do instead, as the price table names them (`tonnage catalog` does not judge "
        "whether they are as good).",
        default=(),
        shown="the workload's own model, where an API sells it",
        example="[meta.llama3-1-8b-instruct-v1:0]",
    )
    tokens_per_minute: Positive | None = key(
        "Tokens a minute the account may use on an API, input and output together.",
        default=None,
        shown="not known: such options have no finish time",
        unit="tokens per minute",
        example="200_000",
    )
    token_p95_latency: Duration | None = key(
        "p95 latency measured on the API.", default=None, shown="not known", example="2s"
    )
    token_p95_ttft: Duration | None = key(
        "p95 time to first token measured on the API.", default=None, shown="not known", example="400ms"
    )
    cached_input: Annotated[float, Field(ge=0, le=1), Spelled("number, 0 to 1")] = key(
        "Share of the input tokens that the API reads from its cache.", default=0.0, example="0.5"
    )
    token_load: Annotated[float, Field(gt=0, le=1), Spelled("number above 0, to 1")] = key(
        "A service's mean rate over its busy rate: tokens are paid by use, machines for the busy time.",
        default=1.0,
        shown="the mean of `serve.traffic`, else 1",
        example="0.4",
    )
    token_prompt: PositiveOrZero = key(
        "Tokens of instructions around each text, where a generative model stands in for an encoder: its task and "
        "labels in a sentence or two, a judgement.",
        default=60.0,
        unit="tokens",
        example="120",
    )
    token_answer: Annotated[float, Field(ge=1), Spelled("number, 1 or more")] = key(
        "Tokens it then writes: the label.", default=3.0, unit="tokens", example="5"
    )
    model_units: Count | None = key(
        "Model units of provisioned throughput that carry the load.", default=None, shown="not known", example="2"
    )
    model_storage_months: PositiveOrZero = key(
        "Months a model customised on an API is kept.", default=1.0, unit="months", example="6"
    )


class TeamFields(StrictModel):
    """Who runs it; used where platforms are compared."""

    size: Count | None = key("People on the team.", default=None, unit="people", example="6")
    ml_expertise: Literal["none", "some", "strong"] | None = key(
        "How much of machine learning the team knows.", default=None, example="some"
    )
    compliance: Words = key("Rules the platform must meet.", default=(), shown="none", example="[hipaa, soc2]")
    hourly_usd: Usd | None = key(
        "What an hour of a person costs; the ledger then counts the hours below.",
        default=None,
        shown="people are not in the ledger",
        unit="USD per hour",
        example="90",
    )
    setup_hours: PlatformHours = key(
        "Hours to set the work up, once.", default=dict, shown="none", unit="hours", example="{vm: 16, databricks: 6}"
    )
    operation_hours: PlatformHours = key(
        "Hours to look after one job, or one month of a service.", default=dict, shown="none", unit="hours", example="4"
    )
    setup_months: Positive = key(
        "A service's set-up is spread over so many months.", default=12.0, unit="months", example="24"
    )


class SharedFields(StrictModel):
    """Keys at the top of every workload file."""

    name: Word | None = key(
        "Name of the workload in reports.", default=None, shown="the file's name", example="bert-finetune"
    )
    constraints: Section[ConstraintFields] = key("What a plan must hold.", default=ConstraintFields, shown="no limits")
    buy: Section[BuyFields] = key("How it may be bought.", default=BuyFields, shown="on demand, and spot")
    team: Section[TeamFields] = key("Who runs it.", default=TeamFields, shown="nothing stated")
    data: Section[DataPlaceFields] = key("Where the data is.", default=DataPlaceFields, shown="not stated")
