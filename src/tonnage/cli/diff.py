"""`tonnage diff`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tonnage.api.snapshots import find_snapshot
from tonnage.cli.declared import PlanSession
from tonnage.cli.session import Session
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.planning.whatif.cost_change import CostChange
    from tonnage.workload.loading import WorkloadText

_LIMIT: Final = re.compile(r"\$?(?P<number>\d+(?:[.,]\d+)?) ?(?P<unit>%|usd|\$)?", re.IGNORECASE)


def diff(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Two workload files; any number with --against or snapshots.")
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REVISION",
            help="Compare each file with itself at a git revision, such as main or HEAD~1.",
            show_default=False,
        ),
    ] = None,
    snapshot_before: Annotated[
        str | None,
        typer.Option(
            "--snapshot-before",
            metavar="SNAPSHOT",
            help="Compare each file under these prices (see `tonnage catalog snapshots`) ...",
            show_default=False,
        ),
    ] = None,
    snapshot_after: Annotated[
        str | None,
        typer.Option(
            "--snapshot-after", metavar="SNAPSHOT", help="... with these. [default: those of plans]", show_default=False
        ),
    ] = None,
    runs: Annotated[
        float, typer.Option("--runs", metavar="N", help="How often a month a training or a batch is carried out.")
    ] = 1.0,
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="USD|%",
            help="Exit code 4 where the whole costs more than that a month on top: 500, or 10%.",
            show_default=False,
        ),
    ] = None,
    *,
    session: PlanSession,
) -> None:
    """Show what a change costs a month: of a workload file, against a git revision, or of prices.

    Each key that changed is priced by itself. `-o md` writes the comment for a pull request. A file that only one
    side has counts as added or removed. Exit code 3: nothing fits after the change; 4: over --fail-above.
    """
    limit = None if fail_above is None else _read_limit(fail_above)
    pairs, said = _pairs(files, against, snapshot_before, snapshot_after)
    with session.progress("planning both sides"):
        changes = [_compare(session, pair, snapshot_before, snapshot_after, runs) for pair in pairs]
    from tonnage.reports.cost_change import cost_change_report

    session.show(cost_change_report(changes, before=said[0], after=said[1]))
    _stop_if_lost(changes)
    if limit is not None:
        _stop_if_over(changes, limit)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both sides of one comparison; None: no such file."""

    file: str
    before: WorkloadText | Path | None
    after: WorkloadText | Path | None


@dataclass(frozen=True, slots=True)
class _Limit:
    """How much more is too much: USD a month, or a share of what it costs before."""

    text: str
    usd: float | None
    fraction: float | None


def _read_limit(text: str) -> _Limit:
    from tonnage.errors import InputError

    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail-above: found '{text}', expected USD a month or a share", hint="such as 500 or 10%")
    number = float(match["number"].replace(",", "."))
    if match["unit"] == "%":
        return _Limit(f"{number:g} %", None, number / 100)
    return _Limit(f"{number:,.2f} USD", number, None)


def _pairs(
    files: list[str], against: str | None, snapshot_before: str | None, snapshot_after: str | None
) -> tuple[list[_Pair], tuple[str, str]]:
    from tonnage.errors import InputError

    if snapshot_after is not None and snapshot_before is None:
        raise InputError("--snapshot-after without --snapshot-before", hint="name the prices of before too")
    if snapshot_before is not None and against is not None:
        raise InputError("--against and --snapshot-before ask two questions", hint="ask one after the other")
    if snapshot_before is not None:
        said = (snapshot_before, snapshot_after or "the prices of plans")
        return [_Pair(name, Path(name), Path(name)) for name in files], said
    if against is not None:
        return list(_against(files, against)), (against, "the working tree")
    if len(files) != 2:
        found = "one file" if len(files) == 1 else f"{len(files)} files"
        raise InputError(f"found {found}, expected two", hint="or --against REVISION, or --snapshot-before SNAPSHOT")
    return [_Pair(files[1], Path(files[0]), Path(files[1]))], (files[0], files[1])


def _against(files: list[str], revision: str) -> Iterator[_Pair]:
    """Each file at the revision and as it is."""
    from tonnage.errors import InputError
    from tonnage.sources.git_files import read_at
    from tonnage.workload.loading import WorkloadText

    for name in files:
        path = Path(name)
        text = read_at(path, revision)
        if text is None and not path.exists():
            raise InputError(f"{name} is neither here nor at {revision}", hint="check the path")
        before = None if text is None else WorkloadText(text=text, file=f"{revision}:{name}", folder=path.parent)
        yield _Pair(name, before, path if path.exists() else None)


def _compare(
    session: Session, pair: _Pair, snapshot_before: str | None, snapshot_after: str | None, runs: float
) -> CostChange:
    from tonnage.api import load_catalog
    from tonnage.diffing import diff as compare_versions

    home, settings = session.settings.home, session.settings
    after = None
    if snapshot_before is not None:
        found = None if snapshot_after is None else find_snapshot(snapshot_after, home)
        after = load_catalog(found, settings=settings)
    return compare_versions(
        pair.before,
        pair.after,
        file=pair.file,
        runs_per_month=runs,
        catalog=None if snapshot_before is None else find_snapshot(snapshot_before, home),
        catalog_after=after,
        settings=settings,
    )


def _stop_if_lost(changes: list[CostChange]) -> None:
    """NothingFits where something fitted before and nothing does now."""
    from tonnage.errors import NothingFits

    lost = [one.name for one in changes if one.after.lacks == "nothing fits"]
    if lost:
        raise NothingFits(f"nothing fits {', '.join(lost)} any more", hint="`tonnage plan` says what binds")


def _stop_if_over(changes: list[CostChange], limit: _Limit) -> None:
    from tonnage.errors import PlanRefused
    from tonnage.planning.whatif.cost_change import total
    from tonnage.reports.cost_change import summary_of

    sums = total(changes)
    if sums is None:
        return
    before, after = sums
    most = limit.usd if limit.usd is not None else (limit.fraction or 0.0) * before
    if after - before > most:
        raise PlanRefused(
            f"the change costs more than {limit.text} a month: {summary_of(changes)}",
            hint="raise --fail-above, or change the file",
        )
