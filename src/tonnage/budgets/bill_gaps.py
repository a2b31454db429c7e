"""Measured hours beside a cloud's bill, by run or service and day: the gap, and what it is made of. Pure.

A gap is split exactly. With h hours billed, e hours estimated, p dollars an hour estimated:
    gap = (h - e) p  +  (cost of the hours - h p)  +  what has no hours  +  credits  +  taxes  +  the rest
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal

from tonnage.bills.lines import BillLine, Charge
from tonnage.units import PICO_PER_USD, SECONDS_PER_HOUR
from tonnage.values import dataclass

GapReason = Literal[
    "billing quantum", "start and end", "hours", "price", "commitment", "other charges", "credit", "tax", "fee",
    "rounding", "other currency", "no price", "untagged", "not in the bill", "not measured here",
]  # fmt: skip
GapState = Literal["equal", "within tolerance", "explained", "unexplained", "unknown"]
LEAST_BILLED_S: Final = 60.0  # AWS and Google Cloud bill a minute at the least
_OPEN: Final[frozenset[GapReason]] = frozenset({"hours", "untagged", "not in the bill", "not measured here"})
_OF_CHARGE: Final[Mapping[Charge, GapReason]] = {
    "credit": "credit", "tax": "tax", "fee": "fee", "adjustment": "fee",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUse:
    """A stretch for which a run or a service held its machines. `usd_per_hour` None: no price was given."""

    name: str
    kind: Literal["run", "service", "batch"]
    started_at: datetime
    seconds: float
    usd_per_hour: float | None
    usd: float | None  # as billed here, by whole quanta
    quantum_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapPart:
    """A part of a gap in pico-dollars, positive where the bill is dearer; None: how much is not known."""

    reason: GapReason
    pico: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudGap:
    """One day of a run or service. `estimate_pico` None: no price was given here."""

    day: date
    name: str
    kind: str
    measured_hours: float
    billed_hours: float | None
    estimate_pico: int | None
    bill_pico: int
    state: GapState
    parts: tuple[GapPart, ...]

    @property
    def gap_pico(self) -> int | None:
        """Positive: the bill is dearer."""
        return None if self.estimate_pico is None else self.bill_pico - self.estimate_pico


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedSpend:
    """Lines of the bill that name no run or service of this home, by what they are for."""

    item: str
    hours: float | None
    pico: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillCompared:
    """The whole answer. `foreign`: lines in another currency without a rate, by currency."""

    kind: str
    first_day: date
    last_day: date
    gaps: tuple[CloudGap, ...]
    unmatched: tuple[UnmatchedSpend, ...]
    foreign: tuple[tuple[str, int], ...]

    @property
    def bill_pico(self) -> int:
        """All lines of dollars."""
        return sum(one.bill_pico for one in self.gaps) + sum(one.pico for one in self.unmatched)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillTolerance:
    """A gap up to either of percent and dollars is none. `edges_s`: how long a machine may be billed before a session
    is measured, and after it."""

    percent: float
    usd: float
    edges_s: float

    def holds(self, gap: int, whole: int) -> bool:
        """Whether a gap of a day is none."""
        return abs(gap) <= max(self.usd * PICO_PER_USD, self.percent / 100.0 * abs(whole))


@dataclass(slots=True, kw_only=True)
class _Billed:
    """What the lines of a name and day add up to."""

    hours: float = 0.0
    hour_pico: int = 0  # of lines with hours, at the price of the day
    commitment_pico: int = 0
    commitment_hours: float = 0.0
    other_pico: int = 0
    digits: int = 0
    counted: bool = False
    foreign: int = 0

    def add(self, line: BillLine, charges: dict[GapReason, int]) -> None:
        if line.usd_pico is None:
            self.foreign += 1
            return
        self.digits += line.digit_pico
        if (reason := _OF_CHARGE.get(line.charge)) is not None:
            charges[reason] += line.usd_pico
        elif line.charge == "commitment":
            self.commitment_pico += line.usd_pico
            self.commitment_hours += line.hours or 0.0
        elif line.hours is None:
            self.other_pico += line.usd_pico
        else:
            self.hour_pico += line.usd_pico
            self.hours += line.hours
        self.counted = self.counted or line.hours is not None


@dataclass(slots=True, kw_only=True)
class _Own:
    """What a name used on a day."""

    kind: str
    seconds: float = 0.0
    estimated_hours: float = 0.0
    pico: int = 0
    sessions: int = 0
    quantum_s: float = 0.0
    priced: bool = True


def compare_with_bill(
    kind: str,
    lines: Iterable[BillLine],
    uses: Sequence[OwnUse],
    name_of: Callable[[BillLine], str | None],
    tolerance: BillTolerance,
) -> BillCompared | None:
    """Set the uses of the bill's days beside its lines, which are read once. None: the bill has no line at all."""
    billed: dict[tuple[date, str], _Billed] = defaultdict(_Billed)
    charges: dict[tuple[date, str], dict[GapReason, int]] = defaultdict(lambda: defaultdict(int))
    unmatched: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    foreign: dict[str, int] = defaultdict(int)
    untagged_hours: dict[date, float] = defaultdict(float)
    days: set[date] = set()
    for line in lines:
        days.add(line.day)
        if line.usd_pico is None:
            foreign[line.currency] += 1
        name = name_of(line)
        if name is not None:
            billed[line.day, name].add(line, charges[line.day, name])
            continue
        held = unmatched[f"{line.charge}: {line.machine or line.item}"]
        held[0] += line.usd_pico or 0
        if line.hours is not None:
            held[1], held[2] = held[1] + line.hours, 1.0
            untagged_hours[line.day] += line.hours
    if not days:
        return None
    own = _own_by_day(uses, min(days), max(days))
    gaps = [
        _gap(key, own.get(key), billed.get(key), charges.get(key, {}), untagged_hours.get(key[0], 0.0), tolerance)
        for key in sorted({*own, *billed})
    ]
    return BillCompared(
        kind=kind, first_day=min(days), last_day=max(days), gaps=tuple(gaps), foreign=tuple(sorted(foreign.items())),
        unmatched=tuple(
            UnmatchedSpend(item=item, hours=hours if timed else None, pico=int(pico))
            for item, (pico, hours, timed) in sorted(unmatched.items(), key=lambda pair: -abs(pair[1][0]))
        ),
    )  # fmt: skip


def _own_by_day(uses: Iterable[OwnUse], first: date, last: date) -> dict[tuple[date, str], _Own]:
    """Uses split at midnight, UTC; those outside of the bill's days are left out."""
    found: dict[tuple[date, str], _Own] = {}
    for use in uses:
        begin = use.started_at.astimezone(UTC)
        end = begin + timedelta(seconds=use.seconds)
        while begin < end:
            midnight = datetime.combine(begin.date() + timedelta(days=1), datetime.min.time(), UTC)
            until = min(end, midnight)
            if first <= begin.date() <= last:
                held = found.setdefault((begin.date(), use.name), _Own(kind=use.kind))
                share = (until - begin).total_seconds() / use.seconds
                held.seconds += share * use.seconds
                held.sessions += 1
                held.quantum_s = max(held.quantum_s, use.quantum_s)
                if use.usd is None or use.usd_per_hour is None:
                    held.priced = False
                else:
                    held.pico += round(share * use.usd * PICO_PER_USD)
                    held.estimated_hours += share * (use.usd / use.usd_per_hour if use.usd_per_hour else
                                                     use.seconds / SECONDS_PER_HOUR)  # fmt: skip
            begin = until
    return found


def _gap(
    key: tuple[date, str], own: _Own | None, billed: _Billed | None, charges: Mapping[GapReason, int],
    untagged_hours: float, tolerance: BillTolerance,
) -> CloudGap:  # fmt: skip
    day, name = key
    held = billed or _Billed()
    bill = held.hour_pico + held.commitment_pico + held.other_pico + sum(charges.values())
    estimate = None if own is not None and not own.priced else 0 if own is None else own.pico
    parts: list[GapPart] = []
    if held.foreign:
        parts.append(GapPart(reason="other currency", pico=None, detail=f"{held.foreign} lines without a rate"))
    if estimate is None:
        parts.append(GapPart(reason="no price", pico=None, detail="--usd-per-hour was not given"))
    elif own is None:
        parts.append(GapPart(reason="not measured here", pico=bill))
    elif billed is None:
        missing = f"{untagged_hours:.2f} h of this day have no tag of ours" if untagged_hours else ""
        why: GapReason = "untagged" if untagged_hours else "not in the bill"
        parts.append(GapPart(reason=why, pico=-estimate, detail=missing))
    else:
        parts += _parts(own, held, charges, bill - estimate, tolerance)
    return CloudGap(
        day=day, name=name, kind="" if own is None else own.kind, parts=tuple(parts),
        measured_hours=0.0 if own is None else own.seconds / SECONDS_PER_HOUR, bill_pico=bill, estimate_pico=estimate,
        billed_hours=held.hours + held.commitment_hours if held.counted else None,
        state=_state(bill, estimate, held, parts, tolerance),
    )  # fmt: skip


def _parts(
    own: _Own, held: _Billed, charges: Mapping[GapReason, int], gap: int, tolerance: BillTolerance
) -> list[GapPart]:
    parts: list[GapPart] = [GapPart(reason=reason, pico=pico) for reason, pico in charges.items() if pico]
    price = own.pico / own.estimated_hours if own.estimated_hours else 0.0
    if held.counted:
        more = held.hours + held.commitment_hours - own.estimated_hours
        pico = round(more * price)
        if pico:
            parts.append(GapPart(reason=_hours_reason(more, own, tolerance), pico=pico, detail=f"{more:+.3f} h"))
        if held.hours and (dearer := held.hour_pico - round(held.hours * price)):
            each = held.hour_pico / held.hours / PICO_PER_USD
            parts.append(GapPart(reason="price", pico=dearer,
                                 detail=f"{each:.4f} USD an hour, estimated {price / PICO_PER_USD:.4f}"))  # fmt: skip
        if held.commitment_hours or held.commitment_pico:
            paid = held.commitment_pico - round(held.commitment_hours * price)
            parts.append(GapPart(reason="commitment", pico=paid, detail=f"{held.commitment_hours:.3f} h"))
        if held.other_pico:
            parts.append(GapPart(reason="other charges", pico=held.other_pico, detail="no hours of machines"))
    elif held.other_pico:
        parts.append(GapPart(reason="price", pico=held.other_pico - own.pico, detail="the bill counts no hours"))
    elif own.pico and not held.foreign:
        parts.append(GapPart(reason="not in the bill", pico=-own.pico, detail="other charges alone are"))
    rest = gap - sum(one.pico or 0 for one in parts)
    if rest and not held.foreign:
        parts.append(GapPart(reason="rounding", pico=rest))
    return [one for one in parts if one.pico]


def _hours_reason(more: float, own: _Own, tolerance: BillTolerance) -> GapReason:
    """What can make hours differ: whole quanta, what lies before and after the measured time, or neither."""
    quantum = own.sessions * max(own.quantum_s, LEAST_BILLED_S) / SECONDS_PER_HOUR
    if abs(more) <= quantum + 1e-9:
        return "billing quantum"
    edges = own.sessions * tolerance.edges_s / SECONDS_PER_HOUR
    return "start and end" if 0 < more <= quantum + edges else "hours"


def _state(
    bill: int, estimate: int | None, held: _Billed, parts: Sequence[GapPart], tolerance: BillTolerance
) -> GapState:
    if estimate is None or held.foreign:
        return "unknown"
    if bill == estimate:
        return "equal"
    if tolerance.holds(bill - estimate, estimate):
        return "within tolerance"
    return "unexplained" if any(one.reason in _OPEN for one in parts) else "explained"
