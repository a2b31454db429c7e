"""What a worker's book speaks of: its part of an account, a hold, a refusal, the outcome of an attempt."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tonnage.gateway.money.allowances import PARTS, Allowance, Amounts
from tonnage.gateway.money.shared_accounts import AccountKey
from tonnage.values import dataclass


class WorkerAccount:
    """A worker's part of an account: `leased` of it, `used` settled since the last flush, `held` by open requests."""

    __slots__ = ("allowance", "begin", "held", "key", "leased", "part", "returns", "unit", "used")

    def __init__(self, allowance: Allowance, begin: int) -> None:
        self.allowance, self.begin, self.unit = allowance, begin, allowance.unit
        self.part, self.returns = PARTS[allowance.unit], allowance.returns
        self.key: AccountKey = (allowance.id, begin)
        self.leased = self.used = self.held = 0

    @property
    def free(self) -> int:
        return self.leased - self.used - self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Whose request it is and where it goes, as the ledger names it."""

    key: str
    team: str
    project: str
    route: str
    deployment: str


class Hold:
    """Amounts taken for one attempt, until it is settled."""

    __slots__ = ("accounts", "amounts", "at_s", "number", "request", "settled", "who")

    def __init__(
        self, number: int, accounts: tuple[WorkerAccount, ...], amounts: Amounts, who: Who, request: str, at_s: float
    ):
        self.number, self.accounts, self.amounts, self.who = number, accounts, amounts, who
        self.request, self.at_s, self.settled = request, at_s, False


class AccountSet(NamedTuple):
    """What a request takes of, while no window of it ends; `numbers`: what the journal calls the accounts."""

    allowances: tuple[Allowance, ...]
    accounts: tuple[WorkerAccount, ...]
    numbers: tuple[int, ...]
    until_s: float


class AllowanceExceeded(Exception):
    """An allowance has not enough left: `has` of `need` in its unit; `until`: when its window ends (None: never)."""

    def __init__(self, allowance: Allowance, *, need: int, has: int, until: datetime | None) -> None:
        super().__init__(f"{allowance.words} has too little left")
        self.allowance, self.need, self.has, self.until = allowance, need, has, until


class AttemptOutcome(NamedTuple):
    """What became of an attempt."""

    status: int
    outcome: str
    amounts: Amounts
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    estimated: bool
    first_byte_s: float | None
    latency_s: float
