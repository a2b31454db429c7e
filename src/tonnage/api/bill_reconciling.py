"""A cloud's bill beside measured hours: `tonnage.reconcile_budgets`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_parted, read_seconds
from tonnage.errors import DataError, TonnageError, UnknownName, did_you_mean, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.bills.lines import BillLine
    from tonnage.budgets.bill_gaps import BillCompared, OwnUse

OWN_TAGS: Final = ("tonnage", "tonnage_run", "tonnage_service")


def read_bill_matches(flag: str, texts: list[str]) -> tuple[tuple[str, str], ...]:
    """`TEXT=NAME` each; InputError names the flag."""
    return read_parted(flag, texts, expected="TEXT=NAME", example="i-0abc=first-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsReconcileOptions(Options):
    """How `budgets reconcile` compares."""

    match: tuple[tuple[str, str], ...] = option(
        "--match", "Lines of the bill that hold TEXT (a resource, a usage type) are of the run or service NAME; may be "
        "repeated.", default=(), metavar="TEXT=NAME", read=read_bill_matches, repeated=True,
    )  # fmt: skip
    tag: tuple[str, ...] = option(
        "--tag", "A tag or label whose value is the name of a run or service, besides those that Tonnage sets; may be "
        "repeated.", default=(), metavar="NAME", repeated=True,
    )  # fmt: skip
    only: str | None = option(
        "--only", "Only lines of the bill that hold TEXT: an account, a project.", default=None, metavar="TEXT"
    )
    edges_s: float = option(
        "--edges", "So long a machine may be billed before and after each measured session.", default=600.0,
        metavar="TIME", read=read_seconds, text="10m",
    )  # fmt: skip
    tolerance_percent: float = option("--tolerance-percent", "Of the estimate.", default=2.0, least=0, most=100)
    tolerance_usd: float = option("--tolerance-usd", "Smaller gaps of a day are none.", default=0.01, least=0)


def reconcile_budgets(
    bill: Path | str, options: BudgetsReconcileOptions | None = None, *, settings: Settings | None = None
) -> Answer[BillCompared]:
    """The hours that runs and services measured beside a cloud's bill, by day, with what each gap is made of.

    The answer's fault is set where a gap is beyond the tolerance, explained or not. Raises DataError for what is no
    bill, UnknownName for a run or service of `match` that is not known.
    """
    from tonnage.bills.reading import read_bill
    from tonnage.budgets.bill_gaps import BillTolerance, compare_with_bill
    from tonnage.budgets.bill_report import compared_report
    from tonnage.reports.wording import plural

    asked, settings = options or BudgetsReconcileOptions(), settings or current_settings()
    uses = list(own_uses(settings))
    names = {one.name for one in uses}
    for _, name in asked.match:
        if name not in names:
            raise UnknownName(
                f"--match: no run or service is named '{name}'",
                hint=did_you_mean(nearest(name, names), "`tonnage ps --all` lists runs"),
            )
    read = read_bill(Path(bill))
    head = list(islice(read.lines, 200))
    if all(one.model is not None for one in head):
        raise DataError(f"{bill} is a bill for tokens ({read.kind})", hint="tonnage gateway reconcile FILE BILL")
    lines = (one for part in (head, read.lines) for one in part if _wanted(one, asked.only))
    tolerance = BillTolerance(percent=asked.tolerance_percent, usd=asked.tolerance_usd, edges_s=asked.edges_s)
    found = compare_with_bill(read.kind, lines, uses, _namer(settings, asked, names), tolerance)
    if found is None:
        raise DataError(f"{bill} has no line" + (f" that holds '{asked.only}'" if asked.only else ""),
                        hint="an export of costs or usage")  # fmt: skip
    beyond = [one for one in found.gaps if one.state in ("explained", "unexplained", "unknown")]
    fault = None
    if beyond:
        counts = {state: sum(one.state == state for one in beyond) for state in ("explained", "unexplained", "unknown")}
        fault = TonnageError(
            f"{plural(len(beyond), 'gap')} beyond the tolerance: "
            + ", ".join(f"{count} {state}" for state, count in counts.items() if count),
            hint="--match where lines are of another run; --usd-per-hour of runs says what is estimated",
        )
    return Answer(found, compared_report, fault=fault)


def own_uses(settings: Settings) -> Iterator[OwnUse]:
    """Every session of every run of the home, and what services and batches held by the book of budgets."""
    from tonnage.api.home_runs import all_runs
    from tonnage.budgets import book as books
    from tonnage.budgets.bill_gaps import OwnUse
    from tonnage.runs.guards import sessions_of

    for folder in all_runs(settings):
        with suppress(FileNotFoundError):  # removed while it is read
            guard = folder.spec().guard
            for one in sessions_of(folder.events(), guard):
                yield OwnUse(name=folder.path.name, kind="run", started_at=one.started_at, seconds=one.seconds,
                             usd_per_hour=one.usd_per_hour, usd=one.usd, quantum_s=guard.billing_quantum_s)  # fmt: skip
    for held in books.ReservationBook(settings.home / books.FILE_NAME).commitments():
        if held.kind != "run" and held.spent is not None:
            seconds = (held.spent.ended_at - held.spent.started_at).total_seconds()
            usd = None if held.spent.micro_usd is None else held.spent.micro_usd / 1e6
            price = None if usd is None or seconds <= 0 else usd / seconds * 3600
            yield OwnUse(name=held.run, kind=held.kind, started_at=held.spent.started_at, seconds=seconds,
                         usd_per_hour=price, usd=usd, quantum_s=0.0)  # fmt: skip


def _wanted(line: BillLine, only: str | None) -> bool:
    return only is None or only.casefold() in f"{line.item} {line.key or ''} {line.resource or ''}".casefold()


def _namer(settings: Settings, asked: BudgetsReconcileOptions, names: set[str]) -> Callable[[BillLine], str | None]:
    """Whose a line is: by `--match`, by the tag that names home and run, by a tag that names a run or service."""
    from tonnage.api.home_runs import runs_folder
    from tonnage.places.contract import home_mark, read_tag

    home = home_mark(runs_folder(settings.home))
    named = [normal_tag(one) for one in (*OWN_TAGS[1:], *asked.tag)]

    def name_of(line: BillLine) -> str | None:
        words = f"{line.item} {line.resource or ''}".casefold()
        found = next((name for text, name in asked.match if text.casefold() in words), None)
        if found is not None or not line.tags:
            return found
        tags: Mapping[str, str] = {normal_tag(name): value for name, value in line.tags}
        ours = read_tag(tags.get(OWN_TAGS[0], ""))
        if ours is not None:
            return ours[2] if ours[0] == home else None
        return next((tags[one] for one in named if tags.get(one) in names), None)

    return name_of


@lru_cache(maxsize=1000)
def normal_tag(name: str) -> str:
    """The name of a tag as clouds' bills write it: AWS puts `user:` or `user_` before it and underscores into it.

    >>> normal_tag("user:tonnage-run"), normal_tag("user_tonnage_run"), normal_tag("Tonnage-Run")
    ('tonnage_run', 'tonnage_run', 'tonnage_run')
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).removeprefix("user_")
