"""The answer for a portfolio: who runs where, what each provider gets, how good it is proven to be, what binds."""

from __future__ import annotations

from datetime import datetime

from tonnage.planning.plan import CatalogStamp, Option, Plan
from tonnage.planning.reasons.notes import PortfolioNote
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.portfolio.values import Commitment


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Runs of one workload on one option of its plan. `cost_usd` a month; hours on committed GPUs are not in it."""

    workload: str
    option: Option
    runs: int
    at_once: int  # runs at a time that are planned for
    gpus_at_once: float
    cost_usd: Figure
    committed_gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """How much of a commitment is held, and how much of it work fills. `cost_usd` a month."""

    commitment: Commitment
    gpus: int
    used_gpu_hours: float
    paid_gpu_hours: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpend:
    """What one provider gets a month, and its share of all. `wanted` None: no share is stated."""

    provider: str
    usd: float
    share: float
    wanted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One constraint of the portfolio: its value, and what one step more of it saves.

    `saves_usd_per_month` is the cost now less the cost of the program solved again with the limit looser by `step`;
    the true saving lies in `saves_low` to `saves_high`, which the proven bounds of both programs give. `binds` where a
    saving is proven.
    """

    name: str
    kind: str  # "share", "capacity", "reserved", "budget", "deadline"
    limit: float
    used: float
    unit: str
    step: float
    saves_usd_per_month: float
    saves_low_usd_per_month: float
    saves_high_usd_per_month: float

    @property
    def binds(self) -> bool:
        return self.saves_low_usd_per_month > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Give:
    """A constraint that has to give: from what to what. `alone`: giving way by itself is enough."""

    name: str
    kind: str
    limit: float
    needed: float
    unit: str
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A workload that no option fits, whatever the portfolio.

    `sellers`: where it could run, had they a share. Else `plan` says what is refused and what would let it in.
    """

    workload: str
    refused: int
    sellers: tuple[str, ...]
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioPlan:
    """The whole answer. Without assignments: `unplaced` or `gives` say why."""

    name: str
    as_of: datetime
    assignments: tuple[Assignment, ...]
    commits: tuple[Commit, ...]
    spend: tuple[ProviderSpend, ...]
    total_usd: Figure | None  # a month
    bound_usd: float | None  # no assignment costs less: proven
    gap: float | None  # (total - bound) / total
    limits: tuple[Limit, ...]
    gives: tuple[Give, ...]
    unplaced: tuple[Unplaced, ...]
    workloads: int
    candidates: int
    catalog: CatalogStamp
    notes: tuple[PortfolioNote, ...]

    @property
    def found(self) -> bool:
        return self.total_usd is not None
