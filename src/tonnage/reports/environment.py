"""Reports on the installation itself: settings, checks of the doctor, what an import did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tonnage.reports.blocks import Block, Page, Pairs, Table
from tonnage.reports.listing import Field, Fields, Listing, cell, field_table, listing_report
from tonnage.reports.rendering import Report
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One look at the installation: what is there, and what to do where it is not as it should be."""

    name: str
    status: Literal["ok", "missing", "notice", "problem"]  # missing: something optional; notice: worth knowing
    found: str
    advice: str = ""


def settings_report(settings: Sequence[tuple[str, str, str]], *, origin: bool) -> Report:
    """(name, value, origin) of every setting."""
    fields: list[Field[tuple[str, str, str]]] = [
        Field(key="name", title="setting", read=lambda row: row[0]),
        Field(key="value", title="value", read=lambda row: row[1], wraps=True),
    ]
    if origin:
        fields.append(Field(key="origin", title="from", read=lambda row: row[2], wraps=True))
    return listing_report(
        Listing(schema="tonnage/config@1", title="Settings", name="settings", head={}, fields=fields, items=settings)
    )


def doctor_report(checks: Sequence[Check]) -> Report:
    """What the doctor found."""
    problems = sum(check.status == "problem" for check in checks)
    title = "Everything needed is there" if not problems else f"{problems} of {len(checks)} checks found a problem"
    fields: tuple[Field[Check], ...] = (
        Field(key="name", title="check", read=lambda one: one.name),
        Field(key="status", title="status", read=lambda one: one.status),
        Field(key="found", title="found", read=lambda one: one.found, wraps=True),
        Field(key="advice", title="what to do", read=lambda one: one.advice, show=str, wraps=True, folds=1,
              fold_text="→ {}"),
    )  # fmt: skip
    return listing_report(
        Listing(
            schema="tonnage/doctor@1",
            title=title,
            name="checks",
            head={"problems": problems},
            fields=fields,
            items=checks,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAccount:
    """What an import wrote, and what became of every row of the source."""

    folder: str
    source: str
    instance_types: int
    offers: int
    rows_read: int
    rows_used: int
    dropped: tuple[tuple[str, int], ...]


def import_report(account: ImportAccount) -> Report:
    """What an import did."""
    return Report(
        page=lambda: _import_page(account),
        document=lambda: _import_document(account),
        columns=("reason", "rows"),
        rows=lambda: [["used", account.rows_used], *([reason, rows] for reason, rows in account.dropped)],
    )


def _import_page(account: ImportAccount) -> Page:
    blocks: list[Block] = [
        Pairs(
            rows=(
                ("written", account.folder),
                ("holds", f"{account.instance_types:,} instance types, {account.offers:,} offers"),
                ("rows read", f"{account.rows_read:,}"),
                ("rows used", f"{account.rows_used:,}"),
            )
        )
    ]
    if account.dropped:
        blocks.append(reasons_table("rows left out", account.dropped))
    return Page(title=f"Imported {account.source}", blocks=tuple(blocks))


def reasons_table(title: str, reasons: Sequence[tuple[str, int]]) -> Table:
    """Why rows were not used, and how many."""
    fields: Fields[tuple[str, int]] = (
        cell(title, lambda row: f"{row[1]:,}", right=True),
        cell("because", lambda row: row[0], wraps=True),
    )
    return field_table(fields, reasons)


def _import_document(account: ImportAccount) -> dict[str, Any]:
    return {
        "schema": "tonnage/catalog-import@1",
        "folder": account.folder,
        "source": account.source,
        "instance_types": account.instance_types,
        "offers": account.offers,
        "rows_read": account.rows_read,
        "rows_used": account.rows_used,
        "dropped": dict(account.dropped),
    }
