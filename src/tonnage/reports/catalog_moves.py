"""Reports on snapshots: which there are, what moved between two, what a refresh did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any

from tonnage.catalog.differences import KINDS, Difference
from tonnage.reports.blocks import Block, Page, Pairs, Paragraph
from tonnage.reports.environment import reasons_table
from tonnage.reports.listing import (
    Field,
    Fields,
    Listing,
    cell,
    field_table,
    field_values,
    fields_report,
    listing_report,
)
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural
from tonnage.values import dataclass


def diff_report(before: str, after: str, moved: Sequence[Difference], *, top: int | None) -> Report:
    """What moved from the snapshot named `before` to `after`."""
    counts = Counter(one.kind for one in moved)
    said = ", ".join(f"{counts[kind]:,} {word}" for kind, word in zip(KINDS, _WORDS, strict=True) if counts[kind])
    return listing_report(
        Listing(
            schema="tonnage/catalog-diff@1",
            title=f"From {before} to {after}: {said or 'nothing moved'}",
            name="differences",
            head={"before": before, "after": after, "counts": {kind: counts[kind] for kind in KINDS}},
            fields=_DIFFERENCE_FIELDS,
            items=moved,
            most=top,
        )
    )


_WORDS = ("at another price", "new", "gone", "described otherwise")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"


_DIFFERENCE_FIELDS: tuple[Field[Difference], ...] = (
    Field(key="kind", title="what", read=lambda one: one.kind),
    Field(key="provider", title="provider", read=lambda one: one.provider),
    Field(key="name", title="name", read=lambda one: one.name),
    Field(key="region", title="region", read=lambda one: one.region, show=lambda text: text or "all"),
    Field(key="purchase", title="bought as", read=lambda one: one.purchase, show=str, folds=1),
    Field(key="field", title="field", read=lambda one: one.what, folds=2),
    Field(key="before", title="before", read=lambda one: one.before, right=True),
    Field(key="after", title="after", read=lambda one: one.after, right=True),
    Field(key="change_pct", title="change", read=lambda one: one.change_pct, show=_percent, right=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLine:
    """One snapshot of the list. Figures are None where it cannot be read; `problem` says why."""

    name: str
    built_on: date | None
    place: str  # "built in" or "home"
    in_use: bool
    instance_types: int | None
    offers: int | None
    oldest_price: date | None
    folder: str
    problem: str = ""


def snapshots_report(lines: Sequence[SnapshotLine]) -> Report:
    """Every snapshot, oldest first."""
    fields: tuple[Field[SnapshotLine], ...] = (
        Field(key="name", title="snapshot", read=lambda one: one.name),
        Field(key="built_on", title="built on", read=lambda one: one.built_on and one.built_on.isoformat()),
        Field(key="place", title="place", read=lambda one: one.place),
        Field(key="in_use", title="used", read=lambda one: one.in_use, show=lambda used: "yes" if used else ""),
        Field(key="instance_types", title="machines", read=lambda one: one.instance_types, right=True),
        Field(key="offers", title="offers", read=lambda one: one.offers, right=True),
        Field(key="oldest_price", title="oldest price", read=lambda one: one.oldest_price and str(one.oldest_price)),
        Field(key="folder", title="folder", read=lambda one: one.folder, folds=2, wraps=True),
        Field(key="problem", title="problem", read=lambda one: one.problem, show=str, folds=1, wraps=True),
    )
    return listing_report(
        Listing(
            schema="tonnage/catalog-snapshots@1",
            title=plural(len(lines), "snapshot"),
            name="snapshots",
            head={},
            fields=fields,
            items=lines,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """What became of one source. `status`: answered, failed, skipped."""

    name: str
    title: str
    status: str
    reason: str
    rows_read: int
    rows_used: int
    dropped: tuple[tuple[str, int], ...]
    quarantined: tuple[tuple[str, int], ...]
    incomplete: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshAccount:
    """What a refresh did. `folder` and `quarantine_file` None: nothing was written."""

    before: str
    folder: str | None
    dry_run: bool
    instance_types: int
    offers: int
    managed_prices: int
    read: int
    quarantined: int
    quarantine_file: str | None
    moved: tuple[tuple[str, int], ...]  # kind of difference, rows
    sources: tuple[SourceLine, ...]


def refresh_report(account: RefreshAccount) -> Report:
    """What a refresh did, source by source."""
    return fields_report(
        lambda: _refresh_page(account), lambda: _refresh_document(account), _SOURCE_ROW, account.sources
    )


def _total(counts: Sequence[tuple[str, int]]) -> int:
    return sum(rows for _, rows in counts)


def _said(one: SourceLine) -> str:
    return "; ".join([*([one.reason] if one.reason else []), *one.incomplete])


def _refresh_page(account: RefreshAccount) -> Page:
    written = account.folder or ("nothing: a dry run" if account.dry_run else "nothing")
    blocks: list[Block] = [
        Pairs(
            rows=(
                ("written", written),
                ("holds", f"{account.instance_types:,} instance types, {account.offers:,} offers, "
                          f"{account.managed_prices:,} managed prices"),
                ("newly read", f"{account.read:,}"),
                ("moved", ", ".join(f"{rows:,} {kind}" for kind, rows in account.moved if rows) or "nothing"),
                ("quarantined", f"{account.quarantined:,}"
                                + (f", in {account.quarantine_file}" if account.quarantine_file else "")),
            )
        ),
        field_table(_SOURCE_CELLS, account.sources),
    ]  # fmt: skip
    reasons: Counter[str] = Counter()
    for one in account.sources:
        reasons.update(dict(one.quarantined))
    if reasons:
        blocks.append(reasons_table("quarantined", reasons.most_common()))
    if account.folder is None and not account.dry_run:
        blocks.append(Paragraph(text=f"plans go on with {account.before}", tone="warning"))
    return Page(title=f"Refresh of {account.before}", blocks=tuple(blocks))


def _refresh_document(account: RefreshAccount) -> dict[str, Any]:
    return {
        "schema": "tonnage/catalog-refresh@1",
        "before": account.before,
        "folder": account.folder,
        "dry_run": account.dry_run,
        "instance_types": account.instance_types,
        "offers": account.offers,
        "managed_prices": account.managed_prices,
        "read": account.read,
        "quarantined": account.quarantined,
        "quarantine_file": account.quarantine_file,
        "moved": dict(account.moved),
        "sources": [field_values(_SOURCE, one) for one in account.sources],
    }


_READ: Fields[SourceLine] = (
    Field("rows_read", lambda one: one.rows_read, title="read", show="{:,}".format, right=True),
    Field("rows_used", lambda one: one.rows_used, title="used", show="{:,}".format, right=True),
)
_SOURCE_CELLS: Fields[SourceLine] = (
    cell("source", lambda one: one.title),
    cell("status", lambda one: one.status),
    *_READ,
    cell("quarantined", lambda one: f"{_total(one.quarantined):,}", right=True),
    cell("because", lambda one: _said(one) or UNKNOWN, wraps=True, folds=1),
)
_SOURCE_ROW: Fields[SourceLine] = (
    Field("source", lambda one: one.title),
    Field("status", lambda one: one.status),
    *_READ,
    Field("quarantined", lambda one: _total(one.quarantined)),
    Field("reason", _said),
)
_SOURCE: Fields[SourceLine] = (
    Field("name", lambda one: one.name),
    Field("title", lambda one: one.title),
    Field("status", lambda one: one.status),
    Field("reason", lambda one: one.reason or None),
    *_READ,
    Field("dropped", lambda one: dict(one.dropped)),
    Field("quarantined", lambda one: dict(one.quarantined)),
    Field("incomplete", lambda one: one.incomplete),
)
