"""The gateway that a file describes: frozen values, every name resolved."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tonnage.encryption.data_keys import DataKeys
from tonnage.gateway.dialects.usage import Dialect, Surface
from tonnage.gateway.file.conduct_entries import CanaryEntry, HedgeEntry, IdempotencyEntry, QueueEntry, ShadowEntry
from tonnage.gateway.file.deployment_entries import QualityScore
from tonnage.gateway.file.entries import CacheEntry, ListenEntry, Policy, RetryEntry, TimeoutsEntry
from tonnage.gateway.file.guardrail_entries import Guardrail, RequestClassifier
from tonnage.gateway.file.kept_entries import BatchesEntry, EncryptEntry, RequestLogEntry, SpansEntry
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.rates import DeploymentRates, MediaRates
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.http.pool import Endpoint
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model somewhere. `own`: a machine of one's own, paid by the hour, used before tokens are bought."""

    name: str
    endpoint: Endpoint
    model: str
    dialect: Dialect
    rates: DeploymentRates
    own: bool
    own_usd_per_hour: float | None
    sign_in: SignIn | None
    timeouts: TimeoutsEntry
    at_once: int | None
    max_output_tokens: int | None
    quality: QualityScore | None
    first_byte_s: float | None
    image_tokens: int
    stored_tokens: int | None
    region: str | None
    allowances: tuple[Allowance, ...]
    media: MediaRates | None
    surfaces: frozenset[Surface]  # what may be asked of it: what its dialect can be asked, and has a price


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """`deployments` for requests that meet every condition that is not None."""

    deployments: tuple[str, ...]
    input_tokens_above: int | None
    teams: frozenset[str] | None
    keys: frozenset[str] | None
    regions: frozenset[str] | None
    languages: frozenset[str] | None
    words: tuple[str, ...] | None
    classifier: str | None
    labels: frozenset[str]

    @property
    def conditions(self) -> str:
        """Its conditions, as pages name them."""
        said = [] if self.input_tokens_above is None else [f"input above {self.input_tokens_above:,} tokens"]
        if self.teams is not None:
            said.append(f"team {_either(self.teams)}")
        if self.keys is not None:
            said.append(f"key {_either(self.keys)}")
        if self.languages is not None:
            said.append(f"language {_either(self.languages)}")
        if self.words is not None:
            said.append(f"the words {_either(self.words)}")
        if self.classifier is not None:
            said.append(f"{self.classifier} says {_either(self.labels)}")
        return ", ".join(said) or "every request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a client asks for by name."""

    name: str
    deployments: tuple[str, ...]
    policy: Policy
    weights: tuple[float, ...]  # beside `deployments`
    first_byte_s: float | None
    answer_s: float | None
    quality: float | None
    quality_unknown: bool  # deployments without a score are used all the same
    max_tokens: int | None
    cache: CacheEntry | None
    rules: tuple[RouteRule, ...]
    retry: RetryEntry
    fallback: str | None
    sticky: bool
    hedge: HedgeEntry | None
    canary: CanaryEntry | None
    shadow: ShadowEntry | None
    guardrails: tuple[str, ...]
    most_usd_pico: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a key belongs to. `routes` None: all."""

    name: str
    team: str
    project: str
    routes: frozenset[str] | None
    expires: date | None
    priority: int = 5


ANYBODY = Caller(name="none", team="none", project="none", routes=None, expires=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """All of it. `callers` by the hash of their key; none: whoever reaches the port may ask. `admin_key`: the hash of
    the key that the pages with figures ask for on their own port; None: whoever reaches it."""

    listen: ListenEntry
    deployments: dict[str, Deployment]
    routes: dict[str, Route]
    callers: dict[str, Caller]
    admin_key: str | None
    allowances: tuple[Allowance, ...]
    store: str
    redis: str | None  # its address, maybe with a password
    limits_in_redis: bool
    durable: bool
    after_disconnect_s: float
    guardrails: dict[str, Guardrail]
    classifiers: dict[str, RequestClassifier]
    queue: QueueEntry | None  # None: no request waits
    idempotency: IdempotencyEntry | None  # None: its header is ignored
    log_days: int
    batches: BatchesEntry | None
    request_log: RequestLogEntry | None
    spans: SpansEntry | None
    spans_headers: dict[str, str]  # what their receiver asks for
    encrypt: EncryptEntry | None = None
    state_keys: DataKeys | None = None  # opened where the gateway is started

    def allowances_at(self, deployment: str) -> tuple[Allowance, ...]:
        """What a request at a deployment is taken from beside that: its provider's limits, and the file's for it."""
        tightest: dict[str, Allowance] = {}
        for one in (*self.deployments[deployment].allowances, *self.allowances):
            if (one.scope, one.name) == ("deployment", deployment):
                known = tightest.get(one.id)
                tightest[one.id] = one if known is None or one.cap < known.cap else known
        return tuple(tightest.values())

    def allowances_of(self, caller: Caller, route: str) -> tuple[Allowance, ...]:
        """What a request of a caller on a route is taken from, deployments apart."""
        names = {"total": "", "key": caller.name, "team": caller.team, "project": caller.project, "route": route}
        return tuple(one for one in self.allowances if names.get(one.scope) == one.name)


def _either(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
