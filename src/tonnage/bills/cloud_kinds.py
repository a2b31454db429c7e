"""Lines of bills of clouds.

Shapes, read 2026-11: AWS Cost and Usage Report (`lineItem/…`) and CUR 2.0 (`line_item_…`, tags as a map); FOCUS 1.0 to
1.2 (`BilledCost`); Google Cloud's export of billing to BigQuery, standard and detailed (credits and labels nested);
Azure's cost and usage details of enterprise and customer agreements (`CostInBillingCurrency`, names in any case).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from tonnage.bills.lines import CENT, DOLLARS, BillLine, Charge, Row, amount, day, first, hours, inner, tags, text

_CUR_CHARGES: Final[Mapping[str, Charge]] = {
    "Usage": "usage", "DiscountedUsage": "commitment", "SavingsPlanCoveredUsage": "commitment",
    "SavingsPlanNegation": "commitment", "RIFee": "fee", "SavingsPlanRecurringFee": "fee",
    "SavingsPlanUpfrontFee": "fee", "Fee": "fee", "Tax": "tax", "Credit": "credit", "Refund": "credit",
}  # fmt: skip
_FOCUS_CHARGES: Final[Mapping[str, Charge]] = {
    "Usage": "usage", "Purchase": "fee", "Tax": "tax", "Credit": "credit", "Adjustment": "adjustment",
}  # fmt: skip
_GCP_CHARGES: Final[Mapping[str, Charge]] = {
    "regular": "usage", "tax": "tax", "adjustment": "adjustment", "rounding_error": "adjustment",
}  # fmt: skip
_AZURE_CHARGES: Final[Mapping[str, Charge]] = {
    "usage": "usage", "purchase": "fee", "refund": "credit", "unusedreservation": "fee", "unusedsavingsplan": "fee",
    "roundingadjustment": "adjustment", "tax": "tax",
}  # fmt: skip


def cur(row: Row) -> Iterator[BillLine]:
    """A line item of AWS. What a discount takes off is a credit: EdpDiscount, PrivateRateDiscount and their kin."""
    kind = str(_cur(row, "LineItemType") or "Usage")
    usd_pico, digit = amount(_cur(row, "UnblendedCost"))
    said = [str(found) for name in ("ProductCode", "ResourceId", "UsageType", "LineItemDescription")
            if (found := _cur(row, name))]  # fmt: skip
    named = dict(tags(row.get("resource_tags")))
    old = {name.removeprefix("resourceTags/"): value for name, value in row.items() if name.startswith("resourceTags/")}
    charge = _CUR_CHARGES.get(kind, "credit" if kind.endswith("Discount") else "adjustment")
    counted = charge in ("usage", "commitment") and kind != "SavingsPlanNegation"
    unit = first(row, "pricing/unit", "pricing_unit")
    yield _priced(
        BillLine(
            day=day(_cur(row, "UsageStartDate")), item=" ".join(said), model=None,
            key=_text(_cur(row, "UsageAccountId")), usd_pico=usd_pico, digit_pico=digit, charge=charge,
            currency=str(_cur(row, "CurrencyCode") or DOLLARS),
            hours=hours(_cur(row, "UsageAmount"), unit) if counted else None, resource=_text(_cur(row, "ResourceId")),
            machine=text(row, "product/instanceType", "product_instance_type"), tags=tuple((named | old).items()),
        ),
        None,
    )  # fmt: skip


def focus(row: Row) -> Iterator[BillLine]:
    """A charge of FOCUS. Hours that a commitment pays for say so in `CommitmentDiscountId`."""
    usd_pico, digit = amount(row["BilledCost"])
    names = ("ServiceName", "ResourceId", "ResourceName", "x_UsageType", "SkuMeter", "SkuId", "ChargeDescription",
             "Tags")  # fmt: skip
    charge: Charge = _FOCUS_CHARGES.get(str(row.get("ChargeCategory", "Usage")), "adjustment")
    if charge == "usage" and row.get("CommitmentDiscountId"):
        charge = "commitment"
    counted = hours(row.get("ConsumedQuantity"), row.get("ConsumedUnit"))
    if counted is None:
        counted = hours(row.get("PricingQuantity"), row.get("PricingUnit"))
    yield _priced(
        BillLine(
            day=day(row["ChargePeriodStart"]), item=" ".join(str(row[name]) for name in names if row.get(name)),
            model=None, key=text(row, "SubAccountId"), usd_pico=usd_pico, digit_pico=digit, charge=charge,
            currency=str(row.get("BillingCurrency") or DOLLARS), resource=text(row, "ResourceId", "ResourceName"),
            hours=counted if charge in ("usage", "commitment") else None, tags=tags(row.get("Tags")),
            machine=text(row, "x_InstanceType", "x_SkuInstanceType") or _sku_machine(row),
        ),
        None,
    )  # fmt: skip


def google(row: Row) -> Iterator[BillLine]:
    """A row of the export to BigQuery, and a line for each credit in it. In another currency the export's own rate
    (`currency_conversion_rate`: units of it for a dollar) makes dollars of it."""
    usd_pico, digit = amount(row["cost"])
    label_pairs = (*tags(row.get("labels")), *tags(row.get("system_labels")))
    named = dict(label_pairs)
    said = [inner(row, "service.description"), inner(row, "sku.description"), inner(row, "resource.name")]
    charge: Charge = _GCP_CHARGES.get(str(row.get("cost_type", "regular")), "adjustment")
    line = BillLine(
        day=day(row["usage_start_time"]), item=" ".join(str(one) for one in said if one), model=None,
        key=_text(inner(row, "project.id")), usd_pico=usd_pico, digit_pico=digit, charge=charge,
        currency=str(row.get("currency") or DOLLARS), tags=label_pairs,
        hours=hours(inner(row, "usage.amount"), inner(row, "usage.unit")) if charge == "usage" else None,
        resource=_text(inner(row, "resource.name")), machine=named.get("compute.googleapis.com/machine_spec"),
    )  # fmt: skip
    rate = row.get("currency_conversion_rate")
    yield _priced(line, rate)
    given = row.get("credits") or ()
    for one in json.loads(given) if isinstance(given, str) else given:
        taken, last = amount(one["amount"])
        name = str(one.get("full_name") or one.get("name") or one.get("type") or "credit")
        yield _priced(
            BillLine(day=line.day, item=f"{line.item}: {name}", model=None, key=line.key, usd_pico=taken,
                     digit_pico=last, charge="credit", currency=line.currency, resource=line.resource,
                     machine=line.machine, tags=line.tags),
            rate,
        )  # fmt: skip


def azure(row: Row) -> Iterator[BillLine]:
    """A charge of Azure. Dollars where the export has them (`costInUsd`), else its own amount."""
    low = {name.casefold(): value for name, value in row.items()}
    in_dollars = first(low, "costinusd", "pretaxcostinusd")
    usd_pico, digit = amount(in_dollars if in_dollars is not None else first(low, *AZURE_COSTS))
    currency = str(first(low, "billingcurrency", "billingcurrencycode", "currency") or DOLLARS)
    charge: Charge = _AZURE_CHARGES.get(str(low.get("chargetype", "Usage")).casefold(), "adjustment")
    if charge == "usage" and (low.get("reservationid") or low.get("benefitid")):
        charge = "commitment"
    extra = low.get("additionalinfo")
    info: Mapping[str, Any] = json.loads(extra) if isinstance(extra, str) and extra.startswith("{") else {}
    said = [low.get(name) for name in ("metercategory", "metersubcategory", "metername", "resourceid", "productname")]
    line = BillLine(
        day=day(first(low, "date", "usagedatetime")), item=" ".join(str(one) for one in said if one), model=None,
        key=text(low, "subscriptionid", "subscriptionguid"), usd_pico=usd_pico, digit_pico=digit, charge=charge,
        currency=DOLLARS if in_dollars is not None else currency, converted=in_dollars is not None
        and currency != DOLLARS, resource=text(low, "resourceid", "instanceid", "instancename"),
        hours=hours(first(low, "quantity", "usagequantity"), low.get("unitofmeasure"))
        if charge in ("usage", "commitment") and str(low.get("metercategory", "")).startswith("Virtual Machines")
        else None, machine=_text(info.get("ServiceType")), tags=tags(low.get("tags")),
    )  # fmt: skip
    yield _priced(line, None)


AZURE_COSTS: Final = ("costinbillingcurrency", "cost", "pretaxcost")
CLOUD_KINDS: Final[tuple[tuple[str, tuple[tuple[str, ...], ...], Callable[[Row], Iterator[BillLine]]], ...]] = (
    ("FOCUS", (("BilledCost",), ("ChargePeriodStart",)), focus),
    ("AWS CUR", (("lineItem/UnblendedCost", "line_item_unblended_cost"),
                 ("lineItem/UsageStartDate", "line_item_usage_start_date")), cur),
    ("Google Cloud billing export", (("cost",), ("usage_start_time",)), google),
    ("Azure cost details", (("CostInBillingCurrency", "costInBillingCurrency", "PreTaxCost", "Cost", "cost"),
                            ("UnitOfMeasure", "unitOfMeasure"), ("Date", "date", "UsageDateTime")), azure),
)  # fmt: skip


def _priced(line: BillLine, rate: Any) -> BillLine:
    """Its amount in dollars: by the rate of the bill, or None where it has none."""
    if line.currency.upper() == DOLLARS or line.usd_pico is None:
        return line
    if rate in (None, "") or float(rate) <= 0:
        return replace(line, usd_pico=None)
    return replace(line, usd_pico=round(line.usd_pico / float(rate)), digit_pico=round(line.digit_pico / float(rate)),
                   converted=True)  # fmt: skip


def _cur(row: Row, name: str) -> Any:
    """A column of a line item, by its name of the first report or of CUR 2.0."""
    return first(row, f"lineItem/{name}", f"line_item_{_snake(name)}")


@cache
def _snake(name: str) -> str:
    """
    >>> _snake("UsageStartDate")
    'usage_start_date'
    """
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")


def _sku_machine(row: Row) -> str | None:
    details = row.get("SkuPriceDetails")
    info = json.loads(details) if isinstance(details, str) and details.startswith("{") else details
    return _text(info.get("InstanceType")) if isinstance(info, Mapping) else None


def _text(value: Any) -> str | None:
    return None if value in (None, "") else str(value)


# Shapes, read 2026-11: OpenAI, «Costs» and «Usage» (API pages, and their fields as columns of an export); Anthropic,
# «Cost report» of the Admin API (amounts in cents) and the Console's CSV.
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
