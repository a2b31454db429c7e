"""What may be spent, asked or held at a time: a budget, a rate limit and a limit of requests at once are all one thing.

An allowance has a unit, a scope, a cap and a window. Amounts are taken from it twice: held before a request is sent,
then settled at what it was. Windows are aligned to UTC: a minute, a day, a month, or forever.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from tonnage.gateway.money.rates import usd_text
from tonnage.values import dataclass

Unit = Literal["usd", "requests", "tokens", "at-once"]
Window = Literal["minute", "day", "month", "ever"]
ScopeKind = Literal["total", "key", "team", "project", "route", "deployment"]
SCOPE_KINDS: Final = ("total", "key", "team", "project", "route", "deployment")


PARTS: Final[dict[Unit, int]] = {"usd": 0, "tokens": 1, "requests": 2, "at-once": 3}  # of `Amounts.parts`


class Amounts(NamedTuple):
    """What a request takes of allowances, by unit."""

    usd_pico: int
    tokens: int

    def of(self, unit: Unit) -> int:
        if unit == "usd":
            return self.usd_pico
        return self.tokens if unit == "tokens" else 1

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """The same by the numbers of `PARTS`."""
        return self.usd_pico, self.tokens, 1, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """`cap`: pico-dollars, tokens or requests. A soft one appears in headers and metrics, and refuses nothing."""

    scope: ScopeKind
    name: str  # of the key, the team, ...; empty for the total
    unit: Unit
    window: Window
    cap: int
    hard: bool = True

    @property
    def id(self) -> str:
        """What its account is called in the store."""
        return f"{self.unit}/{self.window}/{self.scope}:{self.name}" + ("" if self.hard else "#soft")

    @property
    def returns(self) -> bool:
        """Whether what was taken comes back when the request ends."""
        return self.unit == "at-once"

    def begin(self, now: datetime) -> int:
        """When the window of a moment began, as Unix seconds; 0 for a window without a beginning."""
        if self.window == "ever":
            return 0
        at = now.astimezone(UTC).replace(second=0, microsecond=0)
        if self.window != "minute":
            at = at.replace(hour=0, minute=0)
        if self.window == "month":
            at = at.replace(day=1)
        return int(at.timestamp())

    def end(self, now: datetime) -> datetime | None:
        """When the window of a moment ends; None: never."""
        if self.window == "ever":
            return None
        begun = datetime.fromtimestamp(self.begin(now), UTC)
        if self.window == "month":
            return (begun + timedelta(days=32)).replace(day=1)
        return begun + (timedelta(minutes=1) if self.window == "minute" else timedelta(days=1))

    @property
    def words(self) -> str:
        """As errors and pages name it.

        >>> Allowance(scope="team", name="search", unit="usd", window="day", cap=5 * 10**12).words
        'the budget of 5 USD a day of team search'
        """
        whose = "of all" if self.scope == "total" else f"of {self.scope} {self.name}"
        if self.unit == "usd":
            per = "in all" if self.window == "ever" else f"a {self.window}"
            return f"the budget of {usd_text(self.cap)} USD {per} {whose}"
        if self.unit == "at-once":
            return f"the limit of {self.cap} requests at a time {whose}"
        return f"the limit of {self.cap} {self.unit} a {self.window} {whose}"
