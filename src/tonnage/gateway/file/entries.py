"""The keys of a gateway file: pydantic models; every key with its meaning."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Day, Named, Names, Reference, Text, checked_reference
from tonnage.gateway.file.conduct_entries import (
    CanaryEntry,
    HedgeEntry,
    IdempotencyEntry,
    QueueEntry,
    SemanticEntry,
    ShadowEntry,
)
from tonnage.gateway.file.deployment_entries import MediaEntry, QualityFromEntry
from tonnage.gateway.file.guardrail_entries import ClassifierEntry, GuardrailEntry, Texts
from tonnage.gateway.file.kept_entries import BatchesEntry, EncryptEntry, RequestLogEntry, SpansEntry
from tonnage.workload.file.fields import (
    Count,
    Duration,
    DurationOrZero,
    Flag,
    Percent,
    Positive,
    PositiveOrZero,
    Spelled,
    StrictModel,
    TokenLength,
    Word,
    Words,
)
from tonnage.workload.file.fields import (
    key as entry,
)


def _key_or_hash(value: object) -> str:
    """A key by reference, or as its hash; another text, which may be the key itself, is not shown."""
    if isinstance(value, str) and re.fullmatch(r"blake2b:[0-9a-f]{64}", value):
        return value
    return checked_reference(value)


Dialect = Literal["openai", "anthropic", "converse"]
Policy = Literal["in-order", "own-first", "cheapest", "fastest", "weighted"]
SignInKind = Literal["none", "bearer", "x-api-key", "api-key", "aws", "google", "azure", "databricks"]
KeyHash = Annotated[str, BeforeValidator(_key_or_hash), Spelled("secret by reference, or blake2b:HASH")]
Priority = Annotated[int, Field(ge=0, le=9), Spelled("whole number, 0 to 9")]
Dollars = Annotated[float, Field(gt=0, le=9e6), Spelled("dollars")]
Scope = Annotated[str, Field(pattern=r"^(total|(key|team|project|route|deployment):(\*|[a-z0-9][a-z0-9_.-]{0,60}))$"),
                  Spelled("total, or key:, team:, project:, route: or deployment: with a name or *")]  # fmt: skip


def _as_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class ListenEntry(StrictModel):
    """Where the gateway listens."""

    host: Word = entry("Address to listen on; others than this machine need keys.", default="127.0.0.1")
    port: Count = entry("Port for clients.", default=8080)
    admin_port: Count | None = entry(
        "Port for health, metrics and spend by key. Default: none but on `port`.", default=None
    )
    admin_host: Word = entry("Address of that port; others than this machine need `admin_key`.", default="127.0.0.1")
    admin_key: KeyHash | None = entry("What /metrics and /gateway there ask for, as a bearer.", default=None)
    workers: Count = entry("Processes that answer.", default=1)
    body_mb: Positive = entry("The largest request, in MB.", default=20.0)
    drain: Duration = entry("How long requests under way may take after SIGTERM.", default=60.0, shown="60s")


class PriceEntry(StrictModel):
    """Dollars a million tokens."""

    input_usd_per_million: PositiveOrZero = entry("Input.")
    output_usd_per_million: PositiveOrZero = entry("Output.")
    cached_input_usd_per_million: PositiveOrZero | None = entry(
        "Input read from a prompt cache. Default: as input.", default=None
    )
    cache_write_usd_per_million: PositiveOrZero | None = entry(
        "Input written to a prompt cache. Default: as input.", default=None
    )
    usd_per_request: PositiveOrZero = entry("For each request, whatever its tokens.", default=0.0)
    above: LongPriceEntry | None = entry("Other prices for long inputs.", default=None)
    source: Text | None = entry("Where the price was read.", default=None)
    read_on: Day | None = entry("When it was read.", default=None)


class LongPriceEntry(StrictModel):
    """Prices of a request whose input is longer than a threshold."""

    tokens: TokenLength = entry("Inputs of more tokens than this.")
    input_usd_per_million: PositiveOrZero = entry("Input.")
    output_usd_per_million: PositiveOrZero = entry("Output.")
    cached_input_usd_per_million: PositiveOrZero | None = entry("Input read from a prompt cache.", default=None)
    cache_write_usd_per_million: PositiveOrZero | None = entry("Input written to a prompt cache.", default=None)


class OwnEntry(StrictModel):
    """A machine of one's own: what its hour costs, and what it does in it."""

    usd_per_hour: Dollars = entry("What the machine costs an hour.")
    input_tokens_per_s: Positive | None = entry("Input tokens it reads a second, when busy.", default=None)
    output_tokens_per_s: Positive | None = entry(
        "Output tokens it writes a second, over all requests, when busy.", default=None
    )
    plan: Word | None = entry("A workload file of kind serve, from whose plan the speeds are taken.", default=None)


class SignInEntry(StrictModel):
    """How the gateway signs in; secrets are named, never written here."""

    kind: SignInKind = entry("Header with a key, or the provider's own way.")
    key: Reference | None = entry("The key of bearer, x-api-key and api-key.", default=None)
    profile: Word | None = entry("Profile of aws; workspace client of databricks.", default=None)
    region: Word | None = entry("Region of aws.", default=None)
    service: Word | None = entry("Service of aws.", default=None)
    scope: Word | None = entry("Scope of google and azure.", default=None)


class TimeoutsEntry(StrictModel):
    """How long the gateway waits for an upstream."""

    connect: Duration = entry("For a connection.", default=5.0, shown="5s")
    first_byte: Duration = entry("For the first byte of an answer.", default=120.0, shown="2m")
    between: Duration = entry("Between two pieces of it.", default=60.0, shown="60s")
    total: Duration = entry("For a whole answer.", default=600.0, shown="10m")


class DeploymentEntry(StrictModel):
    """A model somewhere: an own engine or a token API."""

    name: Word = entry("The key above the entry.")
    url: Word = entry("Its base URL, such as http://127.0.0.1:8000/v1.")
    model: Word = entry("The model's name there.")
    dialect: Dialect = entry("What it speaks.", default="openai")
    price: PriceEntry | None = entry("What its tokens cost.", default=None)
    catalog_price: Word | None = entry(
        "A model of the catalog whose prices it has, such as bedrock/NAME.", default=None
    )
    media: MediaEntry | None = entry("What its images and audio cost, beside or without tokens.", default=None)
    own: OwnEntry | None = entry("A machine of one's own instead of a price.", default=None)
    sign_in: SignInEntry | None = entry("How to sign in.", default=None)
    timeouts: TimeoutsEntry = entry("How long to wait.", default=TimeoutsEntry)
    at_once: Count | None = entry("Requests that it holds at a time.", default=None)
    requests_per_minute: Count | None = entry("Its provider's limit.", default=None)
    tokens_per_minute: TokenLength | None = entry("Its provider's limit.", default=None)
    max_output_tokens: TokenLength | None = entry("The most it writes for one request.", default=None)
    quality: PositiveOrZero | None = entry("Its score in your own evaluation.", default=None)
    quality_from: QualityFromEntry | None = entry("A file of an evaluation that has the score.", default=None)
    first_byte_ms: Positive | None = entry("Expected time to the first byte, until it is measured.", default=None)
    image_tokens: TokenLength = entry("The most that an image given by its address counts.", default=4096)
    stored_tokens: TokenLength | None = entry(
        "The most input that it adds itself: stored conversations, files by id or address, tools that it runs. "
        "Without it such requests are refused where a budget holds.",
        default=None,
    )
    region: Word | None = entry("Where it computes, for residency.", default=None)


class CacheEntry(StrictModel):
    """Answers that are kept."""

    ttl: Duration = entry("How long.", default=3600.0, shown="1h")
    when: Literal["repeatable", "always"] = entry(
        "At temperature 0 or with a seed only, or every answer.", default="repeatable"
    )
    items: Count = entry("How many, for each worker.", default=10_000)
    semantic: SemanticEntry | None = entry("Answers to questions that mean the same, too.", default=None)


class RouteRuleEntry(StrictModel):
    """Other deployments for some requests; the first rule that holds is taken."""

    deployments: Names = entry("Where they go.")
    input_tokens_above: TokenLength | None = entry("Longer inputs than this.", default=None)
    teams: Names | None = entry("Requests of these teams.", default=None)
    keys: Names | None = entry("Requests with these keys.", default=None)
    languages: Names | None = entry(
        "Requests whose last text of the user is in these languages (en, de, ...), or `unknown`.", default=None
    )
    words: Texts | None = entry("Requests with one of these words or phrases in that text, in any case.", default=None)
    classifier: Word | None = entry("A classifier that is asked about that text ...", default=None)
    labels: Words | None = entry("... and those of its labels for which the rule holds.", default=None)
    regions: Annotated[tuple[Word, ...], BeforeValidator(_as_list)] | None = entry(
        "Residency: only deployments there.", default=None
    )


class RetryEntry(StrictModel):
    """Other attempts before the first byte."""

    attempts: Count = entry("At most so many, the first one too.", default=3)
    budget_percent: Percent = entry("Retries may be so many of the requests of the last minute.", default=20.0)


class RouteEntry(StrictModel):
    """A name that clients ask for: a use case."""

    name: Word = entry("The key above the entry.")
    deployments: Names = entry("Where its requests may go.")
    policy: Policy = entry("Which of them first.", default="in-order")
    weights: dict[str, Positive] | None = entry("For weighted: how much each gets.", default=None)
    first_byte: Duration | None = entry(
        "The promise: deployments that are expected to be later come last.", default=None
    )
    answer: Duration | None = entry(
        "The promise for whole answers: deployments that are expected to end later come last.", default=None
    )
    quality: PositiveOrZero | None = entry("Deployments below this quality are not used.", default=None)
    quality_unknown: Literal["refuse", "allow"] = entry(
        "Deployments without a score, where there is a floor: refused when the file is read, or used.", default="refuse"
    )
    max_tokens: TokenLength | None = entry("Output tokens where the client states none.", default=None)
    cache: CacheEntry | None = entry("Answers that are kept.", default=None)
    rules: Annotated[tuple[RouteRuleEntry, ...], BeforeValidator(_as_list)] = entry(
        "Other deployments for some.", default=()
    )
    retry: RetryEntry = entry("Other attempts.", default=RetryEntry)
    canary: CanaryEntry | None = entry("A new deployment for a share. Default: none.", default=None)
    shadow: ShadowEntry | None = entry("Another deployment asked beside. Default: none.", default=None)
    guardrails: Names = entry("Checks that hold for its requests, in this order.", default=())
    hedge: HedgeEntry | None = entry("A second deployment for slow answers. Default: none.", default=None)
    fallback: Word | None = entry("A route to go on with, when every deployment of this one failed.", default=None)
    sticky: Flag = entry("The same beginning of a conversation goes to the same deployment.", default=False)
    most_usd_per_request: Dollars | None = entry("Requests that could cost more are refused.", default=None)


class KeyEntry(StrictModel):
    """Who may ask."""

    name: Word = entry("The key above the entry.")
    key: KeyHash = entry("The key by reference, or its hash as `tonnage gateway key` prints it.")
    team: Word = entry("Whose budget.", default="none")
    project: Word = entry("Whose budget.", default="none")
    routes: Names | None = entry("Routes it may use. Default: all.", default=None)
    priority: Priority = entry(
        "The highest priority that its requests have; 9 is served first, 0 shed first.", default=5
    )
    expires: Day | None = entry("The first day on which it is refused.", default=None)


class BudgetEntry(StrictModel):
    """Dollars that a scope may spend."""

    of: Scope = entry("Whose spending.", default="total")
    usd: Dollars = entry("How much.")
    per: Literal["day", "month", "ever"] = entry("In which time, by UTC.", default="month")
    at: Literal["hard", "soft"] = entry("A soft one warns and refuses nothing.", default="hard")


class LimitEntry(StrictModel):
    """How fast a scope may ask."""

    of: Scope = entry("Whose requests.", default="total")
    requests_per_minute: Count | None = entry("Requests.", default=None)
    tokens_per_minute: TokenLength | None = entry("Tokens, input and output.", default=None)
    at_once: Count | None = entry("Requests under way.", default=None)


class GatewayEntries(StrictModel):
    """A whole gateway file."""

    listen: ListenEntry = entry("Where to listen.", default=ListenEntry)
    deployments: Named[DeploymentEntry] = entry("Models, by name.")
    routes: Named[RouteEntry] = entry("What clients may ask for, by name.")
    keys: Named[KeyEntry] = entry("Who may ask, by name. Without any, everybody on this machine.", default={})
    budgets: Annotated[tuple[BudgetEntry, ...], BeforeValidator(_as_list)] = entry("Dollars.", default=())
    limits: Annotated[tuple[LimitEntry, ...], BeforeValidator(_as_list)] = entry("Rates.", default=())
    guardrails: Named[GuardrailEntry] = entry("Checks of what is asked and answered, by name.", default={})
    classifiers: Named[ClassifierEntry] = entry("Who says what requests are about, for rules, by name.", default={})
    queue: QueueEntry | None = entry(
        "Requests wait at limits of requests at a time. Default: they are refused.", default=None
    )
    idempotency: IdempotencyEntry = entry("Requests that clients send again.", default=IdempotencyEntry)
    encrypt: EncryptEntry | None = entry(
        "What is kept of requests and answers is encrypted. Default: it is readable by the gateway's own user.",
        default=None,
    )  # fmt: skip
    store: Word | None = entry(
        "Accounts: a file, or a postgresql:// URL by reference. Default: in the home.", default=None
    )
    redis: Reference | None = entry(
        "Where answers are kept for all workers and hosts: a redis:// URL, by reference.", default=None
    )
    limits_in: Literal["store", "redis"] = entry(
        "Where requests and tokens a minute are counted; budgets and requests at a time are in the store.",
        default="store",
    )
    durable: Flag = entry("Holds are on the disk before a request is sent, against a loss of power.", default=False)
    after_disconnect: DurationOrZero = entry(
        "How long an answer is still read when its client has gone, for its usage.", default=30.0, shown="30s"
    )
    log_days: Count = entry("Attempts are kept so many days.", default=90)
    batches: BatchesEntry | None = entry("Files and batches of requests. Default: none are taken.", default=None)
    spans: SpansEntry | None = entry("OpenTelemetry: a span for each request and each attempt.", default=None)
    request_log: RequestLogEntry | None = entry("A line for each request, to read and to replay.", default=None)


PriceEntry.model_rebuild()
