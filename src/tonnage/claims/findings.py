"""What checking a document says: one finding a claim, with the right figure and its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Final, Literal, get_args

from tonnage.values import dataclass

Verdict = Literal["ok", "wrong", "stale", "partly", "unknown"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
Kind = Literal["machine", "gpu", "price", "sum", "model size", "model memory", "fit", "rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """A verdict with its grounds: the right figure, its source, and a hint for the one who corrects the text.

    `ok`: the claim holds. `wrong`: it does not. `stale`: it held once. `partly`: it holds for some of what it
    covers. `unknown`: nothing here can tell. `read_on` is the day the source was read, None where it states none.
    """

    verdict: Verdict
    right: str = ""
    source: str = ""
    read_on: date | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim of the document with its answer. `line` counts from 1; `text` is that line as it is."""

    line: int
    kind: Kind
    subject: str
    quantity: str
    claimed: str
    answer: ClaimAnswer
    text: str

    @property
    def verdict(self) -> Verdict:
        return self.answer.verdict

    @property
    def is_alarm(self) -> bool:
        """Whether the text needs correcting: wrong or stale."""
        return self.verdict in ("wrong", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A figure that no finding holds, as printed. `line` counts from 1."""

    line: int
    figure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDocument:
    """All findings of a document in the order of its lines, and what they were checked against."""

    name: str
    catalog_name: str
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()
    figures: int = 0  # amounts of money, numbers with a unit, cells that are numbers
    passed_over: tuple[PassedOver, ...] = ()  # of these figures

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many findings each verdict has, all five verdicts named."""
        found = Counter(finding.verdict for finding in self.findings)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def alarms(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.is_alarm)
