"""What verbs of Bedrock print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.reports.blocks import Code, Heading, Page, Pairs
from tonnage.reports.listing import Field, Fields, Listing, listing_report
from tonnage.reports.plain import plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_money

if TYPE_CHECKING:
    from tonnage.api.bedrock import BedrockWork, ListedResource
    from tonnage.reports.rendering import Report


def bedrock_work(found: BedrockWork) -> Report:
    """The requests, what they cost, and what has become of them (`tonnage/bedrock-work@1`)."""
    from tonnage.places.bucket.cloud import script_of

    cost = found.cost
    usd = "not known" if cost.usd is None else render_money(cost.usd)
    source = f" ({cost.source})" if cost.source else ""
    rows = [("cost", f"{usd}: {cost.why}{source}")]
    if cost.usd_per_hour is not None:
        rows.append(("an hour", render_money(cost.usd_per_hour)))
    if cost.usd_per_month is not None:
        rows.append(("the model, a month", f"{render_money(cost.usd_per_month)} while it is kept"))
    if found.until is not None:
        rows.append(("ends", f"{found.until:%Y-%m-%d %H:%M} UTC"))
    if found.arn is not None:
        rows += [("is", found.arn), ("status", found.status)]
    title = "Would send" if found.arn is None else "At Bedrock"
    sent = Code(lines=tuple(script_of(found.requests).splitlines()))
    shown = (Heading(text="What is sent"), sent) if found.arn is None else ()

    def document() -> dict[str, Any]:
        return {
            "schema": "tonnage/bedrock-work@1",
            "requests": [{"service": one.service, "operation": one.operation, "body": one.body}
                         for one in found.requests],
            "cost_usd": None if cost.usd is None else plain_usd(cost.usd), "cost_why": cost.why,
            "cost_source": cost.source,
            "usd_per_hour": None if cost.usd_per_hour is None else plain_usd(cost.usd_per_hour),
            "usd_per_month": None if cost.usd_per_month is None else plain_usd(cost.usd_per_month),
            "arn": found.arn, "status": found.status,
            "until": None if found.until is None else found.until.isoformat(),
        }  # fmt: skip

    return Report(page=lambda: Page(title=title, blocks=(Pairs(rows=tuple(rows)), *shown)), document=document,
                  columns=("name", "value"), rows=lambda: [list(row) for row in rows])  # fmt: skip


def bedrock_listing(found: tuple[ListedResource, ...]) -> Report:
    """One row a resource (`tonnage/bedrock@1`)."""

    def moment(value: Any) -> str:
        return "" if value is None else str(value)[:16].replace("T", " ")

    fields: Fields[ListedResource] = [
        Field("kind", lambda one: one.resource.kind, title="kind"),
        Field("name", lambda one: one.resource.name, title="name"),
        Field("status", lambda one: one.resource.status, title="status"),
        Field("created", lambda one: one.resource.created.isoformat(), title="since (UTC)", show=moment),
        Field("units", lambda one: one.resource.units, title="units", right=True),
        Field("until", lambda one: None if one.resource.until is None else one.resource.until.isoformat(),
              title="ends (UTC)", show=moment),
        Field("due", lambda one: one.due, title="due", show=lambda due: "yes" if due else ""),
        Field("model", lambda one: one.resource.model),
        Field("why", lambda one: one.why, title="why", show=lambda why: str(why or "")),
    ]  # fmt: skip
    return listing_report(
        Listing(schema="tonnage/bedrock@1", title="At Bedrock", name="things", head={}, fields=fields, items=found)
    )
