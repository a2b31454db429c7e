"""What JSON and CSV promise: valid, finite, complete, the same each time."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.planning.plan import Plan
from tonnage.reports import render_plan
from tonnage.reports.plain import dump_csv, dump_json, plain_number, plain_usd
from tonnage.reports.reasons import risk_words
from tonnage.sizing.estimates import Figure


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, float) else []


@given(st.floats())
def test_plain_number_is_finite_and_near(value: float) -> None:
    """Any float becomes null or a finite number within half a unit of the sixth digit."""
    plain = plain_number(value)
    if not math.isfinite(value):
        assert plain is None
    else:
        assert plain is not None
        assert plain == pytest.approx(value, rel=5.1e-6, abs=5e-324)


def test_whole_numbers_are_kept_whole() -> None:
    """A parameter count is not rounded to six digits."""
    assert plain_number(109482240.0) == 109482240
    assert isinstance(plain_number(8.0), int)


def test_money_keeps_its_cents() -> None:
    """Six digits would lose the cents of a large total."""
    assert plain_usd(1234567.891) == 1234567.891


def test_json_refuses_what_is_not_a_number() -> None:
    """A NaN that slipped through is an error, never invalid JSON."""
    with pytest.raises(ValueError):
        dump_json({"bad": float("nan")})


def test_plan_json_holds_everything(plan: Plan) -> None:
    """Every option and refusal is in the JSON, whatever `top` says; infinity is null."""
    document = json.loads(render_plan(plan, "json", top=1))
    assert [option["rank"] for option in document["options"]] == [1, 2, 3]
    assert [refused["shortfall"] for refused in document["refused"]] == [5.9557, 1.25, None]
    assert all(math.isfinite(number) for number in numbers(document))


def test_ledger_sums_to_cost(plan: Plan) -> None:
    """Lines of the ledger add up to the cost beside them."""
    for option in json.loads(render_plan(plan, "json"))["options"]:
        assert sum(line["usd"] for line in option["ledger"]) == pytest.approx(option["cost_usd"]["value"], abs=1e-9)


def test_infinite_figures_do_not_break_any_form(plan: Plan) -> None:
    """A figure that is infinite shows as unknown in every form."""
    endless = Figure(value=float("inf"), low=1.0, high=float("inf"))
    odd = replace(plan, options=(replace(plan.options[0], time_s=endless, cost_usd=endless),))
    for form in ("table", "json", "csv", "md", "html"):
        text = render_plan(odd, form)
        assert "inf" not in text.replace("info", "").casefold().split()
        assert "Infinity" not in text


def test_csv_has_one_row_an_option(plan: Plan) -> None:
    """CSV reads back with one row an option and the figures of the plan."""
    rows = list(csv.DictReader(io.StringIO(render_plan(plan, "csv"))))
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["risks"] == "; ".join(risk_words(risk) for risk in plan.options[0].risks)
    assert rows[0]["pareto"] == "true"
    assert rows[1]["price_read_on"] == ""


def test_csv_quotes_what_it_must() -> None:
    """Commas and quotes in a cell read back as they were."""
    text = dump_csv(["a"], [['x, "y"\nz']])
    assert list(csv.reader(io.StringIO(text))) == [["a"], ['x, "y"\nz']]


ODD = {
    "a": [], "b": {}, "c": (), "d": [1, -2.5, 1e300, 5e-324, True, None, "é \u2028 \"quoted\" \\ \x01"],
    "e": {"f": {"g": [[], [{}]]}},
    "h": np.float64(0.1), 7: "a whole number as a key", None: 1, True: 2, 1.5: 3, "": "", "i": 10**30,
}  # fmt: skip


@pytest.mark.parametrize("document", [ODD, {}, {"x": [{"y": n, "z": [n] * n} for n in range(4)]}])
def test_a_document_is_written_as_json_dumps_writes_it(document: dict[Any, Any]) -> None:
    """Byte for byte, with an indent of two."""
    assert dump_json(document) == json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_no_document_holds_what_json_does_not_have(value: float) -> None:
    """Wherever it is, as a value or a list's; and no object that JSON has no form for."""
    for document in ({"a": value}, {"a": [{"b": value}]}):
        with pytest.raises(ValueError, match="JSON compliant"):
            dump_json(document)
    with pytest.raises(TypeError, match="not JSON serializable"):
        dump_json({"a": {1, 2}})
