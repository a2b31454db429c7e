"""A reason as JSON: its kind, its fields as plain values, its words."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from tonnage.planning.reasons import Reason
from tonnage.reports.plain import plain_number


def reason_document(reason: Reason, text: str) -> dict[str, Any]:
    """`kind`, every field under its own name, and `text`."""
    return {"kind": reason.kind, **_fields(reason), "text": text}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Reason):
        return {"kind": value.kind, **_fields(value)}
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return plain_number(float(value))
    return value
