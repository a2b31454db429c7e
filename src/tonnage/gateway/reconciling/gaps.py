"""Ledger against bill, by day and model: the gap, what in the ledger can explain it, and the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Literal

from tonnage.bills.lines import BillLine, total_pico
from tonnage.gateway.file.described import Deployment, Gateway
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.reports.blocks import Block, Heading, Page, Pairs
from tonnage.reports.listing import Field, Fields, field_keys, field_rows, field_table, field_values
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short
from tonnage.values import dataclass

Reason = Literal[
    "rounding", "estimated rows", "cut streams", "cached price", "not in the ledger", "not in the bill", "unexplained",
]  # fmt: skip
State = Literal["equal", "within tolerance", "explained", "unexplained"]
CUT: Final = ("cut", "failed", "client-gone", "gateway-stopped", "gateway killed", "gateway-fault")
Matches = Sequence[tuple[str, str]]  # (text that a line of the bill holds, deployment)
_UNKNOWN: Final = "-"
_REASONS: Final = {
    "not in the ledger": "spent beside the gateway, or matched to the wrong deployment",
    "not in the bill": "not billed yet, or matched to the wrong deployment",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What may explain a gap, and up to how much of it; `rows` of the ledger, None: not of rows."""

    reason: Reason
    most_pico: int
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BillGap:
    """One day of the deployments that a bill does not tell apart. `bill_pico` None: a bill of usage alone."""

    day: date
    deployments: tuple[str, ...]
    keys: tuple[str, ...]  # of the bill
    bill_pico: int | None
    ledger_pico: int
    bill_tokens: int | None
    ledger_tokens: int
    state: State
    causes: tuple[Cause, ...]

    @property
    def gap_pico(self) -> int | None:
        """Positive: the bill is dearer."""
        return None if self.bill_pico is None else self.bill_pico - self.ledger_pico


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """`unknown`: lines that belong to no deployment of the file, by what they are for."""

    kind: str
    first_day: date
    last_day: date
    gaps: tuple[BillGap, ...]
    unknown: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A gap up to either of them is none."""

    percent: float
    usd: float

    def holds(self, gap: int, whole: int) -> bool:
        return abs(gap) <= max(self.usd * PICO_PER_USD, self.percent / 100.0 * abs(whole))


def reconcile(
    gateway: Gateway, attempts: Iterable[Mapping[str, Any]], kind: str, lines: Sequence[BillLine], matches: Matches,
    tolerance: Tolerance,
) -> Reconciled:  # fmt: skip
    """Compare the days of the bill. Deployments on machines of one's own are on no bill of tokens."""
    groups = _groups(gateway)
    billed: dict[tuple[date, tuple[str, ...]], list[BillLine]] = defaultdict(list)
    unknown: dict[str, int] = defaultdict(int)
    for line in lines:
        group = _group_of(line, groups, matches)
        if group is None:
            unknown[line.model or line.item] += line.usd_pico or 0
        else:
            billed[line.day, group].append(line)
    days = sorted(line.day for line in lines)
    asked = {group for _, group in billed}
    rows: dict[tuple[date, tuple[str, ...]], list[Mapping[str, Any]]] = defaultdict(list)
    by_name = {name: group for group in asked for name in group}
    for one in attempts:
        day = datetime.fromtimestamp(one["at"], UTC).date()
        group = by_name.get(one["deployment"])
        if group is not None and days[0] <= day <= days[-1]:
            rows[day, group].append(one)
    gaps = [
        _gap(day, group, billed.get((day, group), []), rows.get((day, group), []), gateway, tolerance)
        for day, group in sorted({*billed, *rows})
    ]
    return Reconciled(
        kind=kind, first_day=days[0], last_day=days[-1], gaps=tuple(gaps),
        unknown=tuple(sorted(unknown.items(), key=lambda pair: -pair[1])),
    )  # fmt: skip


def _usd(pico: int) -> str:
    return f"-{usd_text(-pico)}" if pico < 0 else usd_text(pico)


def _dollars(pico: int | None) -> str:
    return _UNKNOWN if pico is None else short(pico / PICO_PER_USD, 6)


def _cause(one: Cause) -> dict[str, Any]:
    return {"reason": one.reason, "at_most_usd": _usd(one.most_pico), "rows": one.rows}


def _cause_words(one: Cause) -> str:
    if one.reason in _REASONS:
        return f"{one.reason}: {_REASONS[one.reason]}"
    rows = "" if one.rows is None else f", {one.rows:,} rows"
    return f"{one.reason} ({'' if one.reason == 'unexplained' else 'up to '}{_dollars(one.most_pico)} USD{rows})"


GAPS: Final[Fields[BillGap]] = (
    Field("day", lambda one: one.day, title="day"),
    Field("deployments", lambda one: one.deployments, title="deployments", show=", ".join),
    Field("bill_keys", lambda one: one.keys),
    Field("bill_usd", lambda one: one.bill_pico, title="bill USD", right=True, json=_usd, show=_dollars),
    Field("ledger_usd", lambda one: one.ledger_pico, title="ledger USD", right=True, json=_usd, show=_dollars),
    Field("gap_usd", lambda one: one.gap_pico, title="gap USD", right=True, json=_usd, show=_dollars),
    Field("bill_tokens", lambda one: one.bill_tokens),
    Field("ledger_tokens", lambda one: one.ledger_tokens),
    Field("state", lambda one: one.state, title="", wraps=True),
    Field("causes", lambda one: one.causes, title="why", wraps=True, json=lambda found: [_cause(one) for one in found],
          show=lambda found: "; ".join(_cause_words(one) for one in found)),
)  # fmt: skip


def reconciled_report(found: Reconciled) -> Report:
    """The days of a bill beside the ledger's."""
    return Report(
        page=lambda: Page(title=f"Ledger and bill ({found.kind}), {found.first_day} to {found.last_day}",
                          blocks=tuple(_blocks(found))),
        document=lambda: {
            "schema": "tonnage/gateway-reconciliation@1", "bill": found.kind, "first_day": str(found.first_day),
            "last_day": str(found.last_day), "gaps": [field_values(GAPS, one) for one in found.gaps],
            "unknown": [{"item": item, "usd": _usd(pico)} for item, pico in found.unknown],
        },
        columns=tuple(field_keys(GAPS[:-1])),
        rows=lambda: field_rows(GAPS[:-1], found.gaps),
    )  # fmt: skip


def _groups(gateway: Gateway) -> dict[str, tuple[str, ...]]:
    """Deployments by their model: a bill tells models apart, not what the gateway calls them."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, one in gateway.deployments.items():
        if not one.own:
            found[one.model].append(name)
    return {model: tuple(names) for model, names in found.items()}


def _group_of(line: BillLine, groups: Mapping[str, tuple[str, ...]], matches: Matches) -> tuple[str, ...] | None:
    words = f"{line.item} {line.model or ''} {line.key or ''}".casefold()
    named = tuple(dict.fromkeys(name for text, name in matches if text.casefold() in words))
    if named:
        return named
    taken = {name for _, name in matches}
    best: str | None = None
    for model in groups:
        if _is_of(line, model) and (best is None or len(model) > len(best)):
            best = model
    if best is None:
        return None
    left = tuple(name for name in groups[best] if name not in taken)
    return left or None


def _is_of(line: BillLine, model: str) -> bool:
    """A bill has the dated name of a model that is asked for by its short one; AWS has it in a resource's name."""
    if line.model is not None:
        return line.model == model or line.model.startswith((f"{model}-2", f"{model}@"))
    return model in line.item


def _gap(
    day: date, group: tuple[str, ...], lines: Sequence[BillLine], rows: Sequence[Mapping[str, Any]], gateway: Gateway,
    tolerance: Tolerance,
) -> BillGap:  # fmt: skip
    bill, ledger = total_pico(lines), sum(one["usd_pico"] for one in rows)
    counted = [one for one in lines if one.input_tokens is not None]
    bill_tokens = sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in counted) if counted else None
    ledger_tokens = sum((one["input_tokens"] or 0) + (one["output_tokens"] or 0) for one in rows)
    if bill is None and not counted and not lines:
        bill = 0  # the bill has other lines of this model, and none of this day
    gap, whole = (bill - ledger, ledger) if bill is not None else ((bill_tokens or 0) - ledger_tokens, ledger_tokens)
    causes: tuple[Cause, ...] = ()
    state: State = "equal"
    if gap:
        within = tolerance.holds(gap, whole) if bill is not None else abs(gap) <= tolerance.percent / 100.0 * whole
        causes = tuple(_causes(gap, lines, rows, gateway.deployments, in_dollars=bill is not None))
        state = "within tolerance" if within else _explained(gap, causes)
        if state == "unexplained":
            causes = (*causes, Cause(reason="unexplained", most_pico=abs(gap) - sum(one.most_pico for one in causes)))
    return BillGap(
        day=day, deployments=group, keys=tuple(sorted({one.key for one in lines if one.key})), bill_pico=bill,
        ledger_pico=ledger, bill_tokens=bill_tokens, ledger_tokens=ledger_tokens, state=state, causes=causes,
    )  # fmt: skip


def _causes(
    gap: int, lines: Sequence[BillLine], rows: Sequence[Mapping[str, Any]], deployments: Mapping[str, Deployment], *,
    in_dollars: bool,
) -> Iterable[Cause]:  # fmt: skip
    """Each with the most that it can explain; in tokens only what is of rows."""
    if not rows or not lines:
        yield Cause(reason="not in the bill" if rows else "not in the ledger", most_pico=0, rows=len(rows) or None)
        return
    if in_dollars and (rounding := sum(one.digit_pico for one in lines) // 2):
        yield Cause(reason="rounding", most_pico=rounding)
    cut = [one for one in rows if one["outcome"] in CUT and one["estimated"]]
    guessed = [one for one in rows if one["estimated"] and one["outcome"] not in CUT]
    if cut:
        yield Cause(reason="cut streams", most_pico=_summed(cut), rows=len(cut))
    if guessed:
        yield Cause(reason="estimated rows", most_pico=_summed(guessed), rows=len(guessed))
    cached = [one for one in rows if one["cached_tokens"]]
    if in_dollars and gap < 0 and cached:
        yield Cause(
            reason="cached price", rows=len(cached),
            most_pico=sum(one["cached_tokens"] * _cached_pico(deployments.get(one["deployment"])) for one in cached),
        )  # fmt: skip


def _summed(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(one["usd_pico"] for one in rows)


def _cached_pico(deployment: Deployment | None) -> int:
    """What a cached token was charged: no more than this can be too much of it."""
    return 0 if deployment is None else deployment.rates.tiers[0].cached_input_pico


def _explained(gap: int, causes: Sequence[Cause]) -> State:
    return "explained" if sum(one.most_pico for one in causes) >= abs(gap) else "unexplained"


def _blocks(found: Reconciled) -> list[Block]:
    blocks: list[Block] = [field_table(GAPS, found.gaps)]
    if found.unknown:
        blocks += [Heading(text="Of no deployment of the file"),
                   Pairs(rows=tuple((item, f"{_dollars(pico)} USD") for item, pico in found.unknown))]  # fmt: skip
    return blocks
