"""Lines of bills for tokens: OpenAI and Anthropic.

Shapes, read 2026-11: OpenAI, «Costs» and «Usage» (API pages, and their fields as columns of an export); Anthropic,
«Cost report» of the Admin API (amounts in cents) and the Console's CSV.
"""

from __future__ import annotations

from tonnage.bills.lines import BillLine
from tonnage.bills.values import CENT, Row, amount, day, first, text


def openai_costs(row: Row) -> BillLine:
    """Of the Costs API, or its export."""
    usd_pico, digit = amount(first(row, "amount_value", "amount"))
    item = str(first(row, "line_item") or "all")
    return BillLine(
        day=day(first(row, "start_time", "start_time_iso")), item=item, model=item.split(",")[0].strip(),
        key=text(row, "api_key_id", "project_name", "project_id"), usd_pico=usd_pico, digit_pico=digit,
        currency=_currency(row),
    )  # fmt: skip


def openai_usage(row: Row) -> BillLine:
    """Of the Usage API: tokens without dollars."""
    model = str(row["model"])
    return BillLine(
        day=day(first(row, "start_time", "start_time_iso")), item=model, model=model,
        key=text(row, "api_key_id", "project_name", "project_id"), usd_pico=None, digit_pico=0,
        input_tokens=int(row["input_tokens"]), output_tokens=int(row["output_tokens"]),
    )  # fmt: skip


def anthropic_report(row: Row) -> BillLine:
    """Of the Admin API's cost report."""
    usd_pico, digit = amount(row["amount"], CENT)
    return BillLine(
        day=day(row["starting_at"]), item=str(first(row, "description", "model", "cost_type") or "all"),
        model=text(row, "model"), key=text(row, "workspace_id"), usd_pico=usd_pico, digit_pico=digit,
        currency=_currency(row),
    )  # fmt: skip


def anthropic_console(row: Row) -> BillLine:
    """Of the Console's CSV."""
    usd_pico, digit = amount(row["cost_usd"])
    kinds = [str(row[name]) for name in ("cost_type", "token_type") if row.get(name)]
    return BillLine(
        day=day(row["usage_date_utc"]), item=" ".join([str(row["model"]), *kinds]), model=text(row, "model"),
        key=text(row, "api_key", "workspace"), usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


def _currency(row: Row) -> str:
    return str(first(row, "amount_currency", "currency") or "USD").upper()
