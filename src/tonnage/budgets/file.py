"""`budgets.toml`: the budgets of a home, by name, and their periods: days, weeks from Monday, months, all in UTC, and a
lifetime without an end.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.errors import InputError
from tonnage.runs.spec import ChargeSpec
from tonnage.values import dataclass

Period = Literal["day", "week", "month", "lifetime"]
FILE_NAME: Final = "budgets.toml"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MICRO_USD: Final = 1_000_000
_HINT: Final = "docs/budgets.md lists the keys"
_Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class PeriodWindow:
    """From `start` up to, and without, `end`; None: unbounded."""

    start: datetime | None
    end: datetime | None

    def share_of(self, start: datetime, end: datetime) -> float:
        """The part of the time from `start` to `end` that lies in this window, 0 to 1; of an instant 0 or 1.

        >>> night = datetime(2026, 1, 1, 18, tzinfo=UTC), datetime(2026, 1, 2, 6, tzinfo=UTC)
        >>> window_of("day", night[0]).share_of(*night)
        0.5
        """
        whole_s = (end - start).total_seconds()
        if whole_s <= 0:
            return float((self.start is None or start >= self.start) and (self.end is None or start < self.end))
        first = start if self.start is None else max(start, self.start)
        last = end if self.end is None else min(end, self.end)
        return max(0.0, (last - first).total_seconds()) / whole_s


def window_of(period: Period, now: datetime) -> PeriodWindow:
    """The period that `now` lies in.

    >>> str(window_of("week", datetime(2026, 11, 24, 11, tzinfo=UTC)).start)
    '2026-11-23 00:00:00+00:00'
    >>> str(window_of("month", datetime(2026, 12, 31, tzinfo=UTC)).end)
    '2027-01-01 00:00:00+00:00'
    """
    if period == "lifetime":
        return PeriodWindow(None, None)
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return PeriodWindow(day, day + timedelta(days=1))
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return PeriodWindow(monday, monday + timedelta(days=7))
    first = day.replace(day=1)
    return PeriodWindow(first, (first + timedelta(days=32)).replace(day=1))


class Budget(BaseModel):
    """What may be spent in a period by the runs that it applies to: those that agree with every key it names."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str
    usd: Annotated[Decimal, Field(ge=0, le=10**12, decimal_places=6)]
    period: Period
    at_limit: Literal["hard", "soft"] = "hard"  # hard: a run that does not fit is refused; soft: it is warned of
    project: _Name | None = None
    team: _Name | None = None
    environment: _Name | None = None
    labels: Annotated[dict[str, str], Field(default_factory=dict)]

    @property
    def limit_micro_usd(self) -> int:
        """The limit in millionths of a US dollar."""
        return int(self.usd * MICRO_USD)

    @property
    def scope(self) -> str:
        """Whose spending it limits, in words."""
        named = {"project": self.project, "team": self.team, "environment": self.environment, **self.labels}
        return ", ".join(f"{name}={value}" for name, value in named.items() if value is not None) or "everything"

    def applies_to(self, charge: ChargeSpec) -> bool:
        """Whether a run that states `charge` counts against this budget."""
        asked = ((self.project, charge.project), (self.team, charge.team), (self.environment, charge.environment))
        labels = dict(charge.labels)
        return all(wanted in (None, has) for wanted, has in asked) and all(
            labels.get(name) == value for name, value in self.labels.items()
        )


def read_budgets(file: Path) -> tuple[Budget, ...]:
    """The budgets of a file, in its order. InputError names the file and the key of what is wrong."""
    try:
        read: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}", hint="budgets.toml is TOML: [budgets.NAME]") from error
    if set(read) - {"budgets"}:
        raise InputError(f"{file}: {min(set(read) - {'budgets'})}: not a key", hint="every budget is a [budgets.NAME]")
    named = read.get("budgets", {})
    if not isinstance(named, dict):
        raise InputError(f"{file}: budgets: not a table", hint="every budget is a [budgets.NAME]")
    return tuple(_budget(file, name, values) for name, values in named.items())


def _budget(file: Path, name: str, values: Any) -> Budget:
    if not NAME.fullmatch(name):
        raise InputError(f"{file}: '{name}' cannot be the name of a budget", hint="letters, digits, - and _")
    if not isinstance(values, dict) or "name" in values:
        raise InputError(f"{file}: budgets.{name}: not a table of a budget's keys", hint=_HINT)
    if isinstance(values.get("usd"), int) and not isinstance(values["usd"], bool):
        values = values | {"usd": Decimal(values["usd"])}
    try:
        return Budget.model_validate({**values, "name": name})
    except ValidationError as error:
        from tonnage.workload.file.tables import refuse_table  # where it is needed alone: it loads all kinds of files

        raise refuse_table(
            error, Budget, values, file=str(file), table=("budgets", name), page="docs/budgets.md"
        ) from error
