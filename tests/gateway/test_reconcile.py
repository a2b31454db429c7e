"""The ledger beside bills in the shapes that providers publish."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.bills.reading import read_bill
from tonnage.errors import DataError, InputError, TonnageError, UnknownName
from tonnage.gateway.money.shared_accounts import SharedAccounts

USD = 10**12
DAY = datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp()


def gateway(folder: Path) -> Path:
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2}
    one = {"url": "http://127.0.0.1:1/v1", "price": price}
    own = {"usd_per_hour": 1, "input_tokens_per_s": 1, "output_tokens_per_s": 1}
    path = folder / "gateway.yaml"
    path.write_text(json.dumps({
        "deployments": {
            "mini": {**one, "model": "gpt-4o-mini"}, "large": {**one, "model": "gpt-4o"},
            "haiku": {**one, "model": "anthropic.claude-3-haiku-20240307-v1:0"},
            "here": {"url": one["url"], "model": "gpt-oss", "own": own},
        },
        "routes": {"chat": {"deployments": ["mini", "large", "haiku", "here"]}}, "store": str(folder / "accounts.db"),
    }))  # fmt: skip
    return path


def ledger(folder: Path, *rows: dict[str, Any]) -> None:
    accounts = SharedAccounts(str(folder / "accounts.db"))
    accounts.open()
    accounts.join("w", "h", 0.0)
    made = []
    for number, row in enumerate(rows):
        one = {
            "id": f"w:{number}", "request": f"r{number}", "at": DAY, "key": "k", "team": "t", "project": "p",
            "route": "chat", "deployment": "mini", "status": 200, "outcome": "ok", "input_tokens": 1000,
            "output_tokens": 100, "cached_tokens": 0, "usd_pico": USD, "estimated": 0, "first_byte_s": 0.1,
            "latency_s": 1.0,
        } | row  # fmt: skip
        made.append(tuple(one.values()))
    accounts.leave("w", (), made)
    accounts.close()


def openai_costs(folder: Path, *lines: tuple[str, str, str]) -> Path:
    """(start, line item, amount) as columns of an export."""
    path = folder / "costs.csv"
    head = "start_time,end_time,start_time_iso,amount_value,amount_currency,line_item,project_id\n"
    rows = (f'{int(DAY)},{int(DAY) + 1},{start},{amount},usd,"{item}",proj_a\n' for start, item, amount in lines)
    path.write_text(head + "".join(rows))
    return path


def compared(folder: Path, bill: Path, **options: Any) -> Any:
    return tonnage.reconcile_gateway(gateway(folder), bill, tonnage.GatewayReconcileOptions(**options))


def test_a_bill_that_agrees(tmp_path: Path) -> None:
    """Lines of a dated model's kinds together are the ledger's amount; other models are other groups."""
    ledger(tmp_path, {}, {"usd_pico": USD // 2}, {"deployment": "large", "usd_pico": 3 * USD}, {"deployment": "here"})
    bill = openai_costs(
        tmp_path, ("x", "gpt-4o-mini-2024-07-18, input", "1.0"), ("x", "gpt-4o-mini-2024-07-18, output", "0.5"),
        ("x", "gpt-4o-2024-08-06, input", "3.00"), ("x", "dall-e-3", "7"),
    )  # fmt: skip
    answer = compared(tmp_path, bill)
    assert answer.fault is None
    assert [(one.deployments, one.bill_pico, one.state) for one in answer.found.gaps] == [
        (("large",), 3 * USD, "equal"), (("mini",), 3 * USD // 2, "equal"),
    ]  # fmt: skip
    assert answer.found.unknown == (("dall-e-3", 7 * USD),)
    assert answer.report().document()["gaps"][1]["ledger_usd"] == "1.5"


@pytest.mark.parametrize(
    ("rows", "amount", "state", "reasons"),
    [
        ([{}], "1.009", "within tolerance", ["rounding"]),
        ([{}, {"estimated": 1, "outcome": "first-byte"}], "1.2", "explained", ["rounding", "estimated rows"]),
        ([{}, {"estimated": 1, "outcome": "client-gone"}], "1.5", "explained", ["rounding", "cut streams"]),
        ([{"cached_tokens": 900_000}], "0.40", "explained", ["rounding", "cached price"]),
        ([{}], "1.4", "unexplained", ["rounding", "unexplained"]),
        ([{"estimated": 1, "usd_pico": USD // 10}, {}], "3.0", "unexplained",
         ["rounding", "estimated rows", "unexplained"]),
        ([{"deployment": "large"}], "1.4", "unexplained", ["not in the ledger", "unexplained"]),
    ],
)  # fmt: skip
def test_gaps_have_their_reasons(
    tmp_path: Path, rows: list[dict[str, Any]], amount: str, state: str, reasons: list[str]
) -> None:
    """What can explain a gap is said with the most that it can; more than the tolerance is exit code 1 either way."""
    ledger(tmp_path, *rows)
    answer = compared(tmp_path, openai_costs(tmp_path, ("x", "gpt-4o-mini, input", amount)))
    gap = next(one for one in answer.found.gaps if one.deployments == ("mini",))
    assert (gap.state, [one.reason for one in gap.causes]) == (state, reasons)
    assert (answer.fault is None) is (state == "within tolerance")
    if answer.fault is not None:
        assert answer.fault.exit_code == 1
        with pytest.raises(TonnageError, match="beyond the tolerance"):
            answer.checked()
    assert compared(tmp_path, tmp_path / "costs.csv", tolerance_usd=100.0).fault is None


def test_days_are_apart(tmp_path: Path) -> None:
    """What the bill has a day later is a gap of both days, and days outside of it are not looked at."""
    ledger(tmp_path, {}, {"at": DAY + 86_400.0}, {"at": DAY - 86_400.0}, {"at": DAY + 10 * 86_400.0})
    path = tmp_path / "costs.json"
    result = {"object": "organization.costs.result", "amount": {"value": 2.0, "currency": "usd"},
              "line_item": "gpt-4o-mini, input", "project_id": None}  # fmt: skip
    empty = {**result, "amount": {"value": 0.0, "currency": "usd"}, "line_item": "gpt-4o, input"}
    buckets = [{"object": "bucket", "start_time": int(DAY // 86_400) * 86_400 + shift, "results": [one]}
               for shift, one in ((0, result), (86_400, empty))]  # fmt: skip
    path.write_text(json.dumps({"object": "page", "data": buckets, "has_more": False}))
    found = compared(tmp_path, path).found
    told = {(one.day, one.deployments): (one.gap_pico, one.causes[0].reason) for one in found.gaps if one.causes}
    assert told == {
        (date(2026, 11, 3), ("mini",)): (USD, "rounding"), (date(2026, 11, 4), ("mini",)): (-USD, "not in the bill"),
    }  # fmt: skip


def test_usage_compares_tokens(tmp_path: Path) -> None:
    """A bill without dollars."""
    ledger(tmp_path, {}, {})
    path = tmp_path / "usage.csv"
    path.write_text(f"start_time,model,api_key_id,input_tokens,output_tokens\n{int(DAY)},gpt-4o-mini,key_1,2000,200\n")
    (gap,) = compared(tmp_path, path).found.gaps
    assert (gap.bill_pico, gap.gap_pico, gap.bill_tokens, gap.ledger_tokens) == (None, None, 2200, 2200)
    assert (gap.state, gap.keys) == ("equal", ("key_1",))
    path.write_text(path.read_text().replace("2000", "3000"))
    assert compared(tmp_path, path).fault is not None


BILLS = {
    "anthropic-report": ({"data": [{"starting_at": "2026-11-03T00:00:00Z", "ending_at": "2026-11-04T00:00:00Z",
        "results": [{"amount": "100.00", "currency": "USD", "cost_type": "tokens", "model": "gpt-4o-mini",
                     "token_type": "output_tokens", "description": "Output", "workspace_id": None}]}]}, None),
    "anthropic-console": ("usage_date_utc,model,workspace,api_key,token_type,cost_usd,cost_type\n"
                          "2026-11-03,gpt-4o-mini,Default,web,input_no_cache,1.00,token\n", None),
    "cur": ("lineItem/UsageStartDate,lineItem/UnblendedCost,lineItem/UsageType,lineItem/LineItemType,"
            "lineItem/CurrencyCode\n2026-11-03T11:00:00Z,1.00,USE1-Claude3Haiku-input-tokens,Usage,USD\n"
            "2026-11-03T11:00:00Z,0.19,,Tax,USD\n", "Claude3Haiku"),
    "cur2": ("line_item_usage_start_date,line_item_unblended_cost,line_item_usage_type,line_item_resource_id\n"
             "2026-11-03 11:00:00.000,1.00,x,arn:aws:bedrock:::foundation-model/"
             "anthropic.claude-3-haiku-20240307-v1:0\n", None),
    "focus": ("BilledCost,BillingCurrency,ChargePeriodStart,ChargeCategory,ServiceName,SkuId,x_UsageType\n"
              "1.00,USD,2026-11-03T00:00:00Z,Usage,Amazon Bedrock,SKU1,USE1-Claude3Haiku-output-tokens\n"
              "9.00,USD,2026-11-03T00:00:00Z,Tax,Amazon Bedrock,SKU1,\n", "Claude3Haiku"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BILLS)
def test_every_kind_of_bill(tmp_path: Path, kind: str) -> None:
    """One dollar on the third of November, whatever the shape; taxes are no tokens."""
    content, text = BILLS[kind]
    path = tmp_path / "bill"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    name = "mini" if kind.startswith("anthropic") else "haiku"
    ledger(tmp_path, {"deployment": name})
    (gap,) = compared(tmp_path, path, match=((text, "haiku"),) if text else ()).found.gaps
    assert (gap.day, gap.deployments, gap.bill_pico, gap.state) == (date(2026, 11, 3), (name,), USD, "equal")


def test_keys_apart(tmp_path: Path) -> None:
    """A bill of several keys: those of others are left out, or given to their own deployment."""
    ledger(tmp_path, {}, {"deployment": "large", "usd_pico": 2 * USD})
    path = tmp_path / "bill.csv"
    path.write_text("usage_date_utc,model,api_key,cost_usd\n2026-11-03,gpt-4o-mini,web,1.00\n"
                    "2026-11-03,gpt-4o-mini,nightly,2.00\n")  # fmt: skip
    assert compared(tmp_path, path).fault is not None
    (alone,) = compared(tmp_path, path, only="web").found.gaps
    assert (alone.state, alone.keys) == ("equal", ("web",))
    apart = compared(tmp_path, path, match=(("nightly", "large"),)).found.gaps
    assert [(one.deployments, one.state) for one in apart] == [(("large",), "equal"), (("mini",), "equal")]


def test_what_is_no_bill_is_said(tmp_path: Path) -> None:
    """With what is known; other currencies and unknown deployments too."""
    path = tmp_path / "x.csv"
    for content, said in (("a,b\n1,2\n", "not a bill that is known"), ("", "has no line"), ("{", "not JSON"),
                          ("usage_date_utc,model,cost_usd\nsoon,m,1\n", r"x\.csv:2 cannot be read"),
                          ("BilledCost,ChargePeriodStart,BillingCurrency\n1,2026-11-03,EUR\n", "is in EUR"),
                          ("BilledCost,ChargePeriodStart,ChargeCategory\n1,2026-11-03,Tax\n",
                           "no line of usage")):  # fmt: skip
        path.write_text(content)
        with pytest.raises(DataError, match=said):
            compared(tmp_path, path)
    path.write_text("usage_date_utc,model,cost_usd\n2026-11-03,m,1\n")
    with pytest.raises(UnknownName, match="no deployment is named 'tiny'"):
        compared(tmp_path, path, match=(("m", "tiny"),))
    from tonnage.api.gateway_accounts import read_matches

    with pytest.raises(InputError, match="expected TEXT=DEPLOYMENT"):
        read_matches("--match", ["x"])


def test_amounts_are_exact(tmp_path: Path) -> None:
    """Cents of Anthropic's report, digits, separators."""
    path = tmp_path / "bill.csv"
    path.write_text('usage_date_utc,model,cost_usd\n2026-11-03,m,"$1,234.5678"\n')
    (line,) = read_bill(path).lines
    assert (line.usd_pico, line.digit_pico) == (1_234_567_800_000_000, USD // 10_000)
    path.write_text(json.dumps({"starting_at": "2026-11-03T23:30:00-05:00", "amount": "123.45", "currency": "USD"}))
    (line,) = read_bill(path).lines
    assert (line.usd_pico, line.digit_pico, line.day) == (1_234_500_000_000, USD // 10_000, date(2026, 11, 4))
