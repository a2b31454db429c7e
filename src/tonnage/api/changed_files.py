"""`tonnage.diff_files`: what a change of files, a git revision or prices costs a month, and how much is too much."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.snapshots import find_snapshot
from tonnage.errors import InputError, NothingFits, PlanRefused, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.planning.whatif.cost_change import CostChange
    from tonnage.workload.loading import WorkloadText

_LIMIT: Final = re.compile(r"\$?(?P<number>\d+(?:[.,]\d+)?) ?(?P<unit>%|usd|\$)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions(Options):
    """What the files are compared with, and how much more a month is too much."""

    against: str | None = option(
        "--against", "Compare each file with itself at a git revision, such as main or HEAD~1.", default=None,
        metavar="REVISION",
    )  # fmt: skip
    snapshot_before: str | None = option(
        "--snapshot-before", "Compare each file under these prices (see `tonnage catalog snapshots`) ...",
        default=None, metavar="SNAPSHOT",
    )  # fmt: skip
    snapshot_after: str | None = option(
        "--snapshot-after", "... with these. [default: those of plans]", default=None, metavar="SNAPSHOT"
    )
    runs: float = option("--runs", "How often a month a training or a batch is carried out.", default=1.0, metavar="N")
    fail_above: str | None = option(
        "--fail-above", "Exit code 4 where the whole costs more than that a month on top: 500, or 10%.", default=None,
        metavar="USD|%",
    )  # fmt: skip


def diff_files(
    files: Sequence[str], asked: DiffOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[CostChange, ...]]:
    """Two files compared, or any number with another revision or snapshot of prices.

    The answer's fault is NothingFits where nothing fits now and it was not so before, else PlanRefused above
    `fail_above`. Raises InputError for what cannot be compared.
    """
    from tonnage.reports.cost_change import cost_change_report

    asked, settings = asked or DiffOptions(), settings or current_settings()
    limit = None if asked.fail_above is None else _read_limit(asked.fail_above)
    pairs, (before, after) = _pairs(files, asked)
    changes = tuple(_compare(pair, asked, settings) for pair in pairs)
    fault = _lost(changes) or (None if limit is None else _over(changes, limit))
    return Answer(changes, partial(cost_change_report, before=before, after=after), fault)


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
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail-above: found '{text}', expected USD a month or a share", hint="such as 500 or 10%")
    whole, comma, after = match["number"].partition(",")
    if comma and len(after) == 3 and int(whole):
        raise InputError(f"--fail-above: '{text}' is read in two ways", hint=f"{whole}{after}, or {whole}.{after}")
    number = float(match["number"].replace(",", "."))
    if match["unit"] == "%":
        return _Limit(f"{number:g} %", None, number / 100)
    return _Limit(f"{number:,.2f} USD", number, None)


def _pairs(files: Sequence[str], asked: DiffOptions) -> tuple[list[_Pair], tuple[str, str]]:
    """The pairs, and what both sides are called."""
    if asked.snapshot_after is not None and asked.snapshot_before is None:
        raise InputError("--snapshot-after without --snapshot-before", hint="name the prices of before too")
    if asked.snapshot_before is not None and asked.against is not None:
        raise InputError("--against and --snapshot-before ask two questions", hint="ask one after the other")
    if asked.snapshot_before is not None:
        said = (asked.snapshot_before, asked.snapshot_after or "the prices of plans")
        return [_Pair(name, Path(name), Path(name)) for name in files], said
    if asked.against is not None:
        return list(_against(files, asked.against)), (asked.against, "the working tree")
    if len(files) != 2:
        found = "one file" if len(files) == 1 else f"{len(files)} files"
        raise InputError(f"found {found}, expected two", hint="or --against REVISION, or --snapshot-before SNAPSHOT")
    return [_Pair(files[1], Path(files[0]), Path(files[1]))], (files[0], files[1])


def _against(files: Sequence[str], revision: str) -> Iterator[_Pair]:
    """Each file at the revision and as it is."""
    from tonnage.sources.git_files import read_at
    from tonnage.workload.loading import WorkloadText

    for name in files:
        path = Path(name)
        text = read_at(path, revision)
        if text is None and not path.exists():
            raise InputError(f"{name} is neither here nor at {revision}", hint="check the path")
        before = None if text is None else WorkloadText(text=text, file=f"{revision}:{name}", folder=path.parent)
        yield _Pair(name, before, path if path.exists() else None)


def _compare(pair: _Pair, asked: DiffOptions, settings: Settings) -> CostChange:
    from tonnage.api.catalogs import load_catalog
    from tonnage.diffing import diff

    before = after = None
    if asked.snapshot_before is not None:
        before = find_snapshot(asked.snapshot_before, settings.home)
        found = None if asked.snapshot_after is None else find_snapshot(asked.snapshot_after, settings.home)
        after = load_catalog(found, settings=settings)
    return diff(
        pair.before, pair.after, file=pair.file, runs_per_month=asked.runs, catalog=before, catalog_after=after,
        settings=settings,
    )  # fmt: skip


def _lost(changes: Sequence[CostChange]) -> TonnageError | None:
    """Where nothing fits now and it was not so before: something fitted, or the file is new."""
    none = "nothing fits"
    lost = [one.name for one in changes if one.after.lacks == none and one.before.lacks is None]
    if not lost:
        return None
    return NothingFits(f"nothing fits {', '.join(lost)} after the change", hint="`tonnage plan` says what binds")


def _over(changes: Sequence[CostChange], limit: _Limit) -> TonnageError | None:
    from tonnage.planning.whatif.cost_change import total
    from tonnage.reports.cost_change import summary_of

    sums = total(changes)
    if sums is None:
        return None
    before, after = sums
    most = limit.usd if limit.usd is not None else (limit.fraction or 0.0) * before
    if after - before <= most:
        return None
    return PlanRefused(
        f"the change costs more than {limit.text} a month: {summary_of(changes)}",
        hint="raise --fail-above, or change the file",
    )
