"""Whose money a run, service or batch spends: options that they share, and what a service and a batch reserve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.committing import BOOK, FILE, open_book
from tonnage.api.declaring import option
from tonnage.errors import InputError, PlanRefused

if TYPE_CHECKING:
    from tonnage.runs.spec import ChargeSpec
    from tonnage.traffic.batch import BatchProgress

LEASE_S: Final = 900.0
RENEW_S: Final = 300.0  # after so long the next lease is reserved
DRAIN_BEFORE_S: Final = 120.0  # before the end of a lease that could not be renewed
MICRO: Final = 1e6


def charge_option(which: str, default: str = "none") -> Any:
    """`--project`, `--team` or `--environment`."""
    return option(f"--{which}", f"Whose budgets apply: the {which}. [default: {default}]", default=None, metavar="NAME")


def label_option(more: str = "") -> Any:
    """`--label`, which may be repeated."""
    return option("--label", f"NAME=VALUE that budgets may name{more}; may be repeated.", default=(),
                  metavar="NAME=VALUE", repeated=True, read=lambda _, texts: tuple(texts))  # fmt: skip


def read_labels(given: Sequence[str], known: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` each, over those that are known. InputError for what is none."""
    labels = dict(known)
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals or not value:
            raise InputError(f"found '{one}' for --label, expected NAME=VALUE", hint="--label cost-center=a42")
        labels[name] = value
    return tuple(labels.items())


def charge_of(options: Any) -> ChargeSpec:
    """What the options of a service or a batch say."""
    from tonnage.runs.spec import ChargeSpec

    return ChargeSpec(project=options.project, team=options.team, environment=options.environment,
                      labels=read_labels(options.labels))  # fmt: skip


class Lease:
    """What a service has reserved: renewed while it runs, settled at its end."""

    def __init__(self, home: Path, name: str, charge: ChargeSpec, usd_per_hour: float | None) -> None:
        """Reserve the first lease. `usd_per_hour`: of all machines that it may hold; PlanRefused where a hard budget
        has no room."""
        from tonnage.budgets.book import ReservationRequest

        self._home, self._name, self._charge = home, name, charge
        self._bound = None if usd_per_hour is None else math.ceil(usd_per_hour * LEASE_S / 3600 * MICRO)
        book, budgets = open_book(home)
        self._began, self._settled_usd = datetime.now(UTC), 0.0
        self._number = book.reserve(
            ReservationRequest(run=name, folder=home / "services" / name, charge=charge, bound_micro_usd=self._bound,
                               kind="service"), budgets)  # fmt: skip
        self.refusal = ""

    def tick(self, spent_usd: float | None, now: datetime | None = None) -> bool:
        """Renew the lease where it is time. `spent_usd`: since the start. False: it may not be held any longer."""
        at = now or datetime.now(UTC)
        held_s = (at - self._began).total_seconds()
        if held_s < RENEW_S:
            return True
        from tonnage.budgets.book import BookError

        try:
            book, budgets = open_book(self._home)
            book.renew(self._number, self._spent(spent_usd, at), self._bound, budgets, now=at)
        except (PlanRefused, BookError, InputError) as error:
            self.refusal = str(error)
            return held_s < LEASE_S - DRAIN_BEFORE_S
        self._began, self._settled_usd, self.refusal = at, spent_usd or 0.0, ""
        return True

    def close(self, spent_usd: float | None, now: datetime | None = None) -> None:
        """The service has ended."""
        from tonnage.budgets.book import ReservationBook

        ended = self._spent(spent_usd, now or datetime.now(UTC))
        ReservationBook(self._home / BOOK).close_lease(self._number, ended)

    def _spent(self, spent_usd: float | None, at: datetime) -> Any:
        from tonnage.budgets.standing import SettledCost

        micro = None if self._bound is None or spent_usd is None else math.ceil(
            max(spent_usd - self._settled_usd, 0.0) * MICRO - 1e-6)  # fmt: skip
        return SettledCost(micro_usd=micro, started_at=self._began, ended_at=at)


class Leased:
    """A lease where the home has budgets, and nothing where it has none."""

    def __init__(self, lease: Lease | None, say: Callable[[str], None]) -> None:
        self._lease, self._say, self._said, self._usd = lease, say, "", 0.0 if lease is not None else None

    def tick(self, spent_usd: float | None) -> bool:
        """False: a hard budget is at its limit, and the service is to answer what is under way and end."""
        self._usd = spent_usd
        if self._lease is None:
            return True
        goes_on = self._lease.tick(spent_usd)
        if self._lease.refusal and self._lease.refusal != self._said:
            self._say(f"{self._lease.refusal}; the service ends when its lease does" if goes_on else
                      f"the lease is at its end: finishing what is being answered ({self._lease.refusal})")  # fmt: skip
        self._said = self._lease.refusal if goes_on else ""
        return goes_on

    def close(self) -> None:
        """Settle what the last lease took."""
        if self._lease is not None:
            self._lease.close(self._usd)


@contextmanager
def leased(
    home: Path, name: str, charge: ChargeSpec, usd_per_hour: float | None, say: Callable[[str], None]
) -> Iterator[Leased]:
    """What a service may cost is reserved while the block runs. PlanRefused where a hard budget has no room."""
    if not (home / FILE).exists():
        yield Leased(None, say)
        return
    found = Leased(Lease(home, name, charge, usd_per_hour), say)
    try:
        yield found
    finally:
        found.close()


class BatchSpend:
    """What a batch has come to, as its progress says; None: not known."""

    def __init__(self) -> None:
        self.usd: float | None = None
        self._earlier_usd: float | None = None

    def following(self, on_progress: Callable[[BatchProgress], None]) -> Callable[[BatchProgress], None]:
        """What is called with each progress: the first one has what earlier runs of the command took."""

        def seen(progress: BatchProgress) -> None:
            if progress.usd is not None:
                if self._earlier_usd is None:
                    self._earlier_usd = progress.usd
                self.usd = progress.usd - self._earlier_usd
            on_progress(progress)

        return seen


@contextmanager
def batch_reserved(home: Path, name: str, charge: ChargeSpec, bound_usd: float | None) -> Iterator[BatchSpend]:
    """The most that a batch may cost is reserved while the block runs; then what it took takes its place."""
    spend = BatchSpend()
    if not (home / FILE).exists():
        yield spend
        return
    from tonnage.budgets.book import ReservationRequest
    from tonnage.budgets.standing import SettledCost

    book, budgets = open_book(home)
    began = datetime.now(UTC)
    bound = None if bound_usd is None else math.ceil(bound_usd * MICRO - 1e-6)
    number = book.reserve(
        ReservationRequest(run=name, folder=home, charge=charge, bound_micro_usd=bound, kind="batch"), budgets
    )
    try:
        yield spend
    finally:
        micro = bound if spend.usd is None else math.ceil(spend.usd * MICRO - 1e-6)
        book.close_lease(number, SettledCost(micro_usd=micro, started_at=began, ended_at=datetime.now(UTC)))
