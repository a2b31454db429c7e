"""docs/json.md describes the JSON forms as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tonnage.catalog import check_catalog, describe, load_catalog
from tonnage.planning.plan import Plan
from tonnage.planning.sizes import SizeReport
from tonnage.reports import Report, render_explain, render_plan, render_report, render_size
from tonnage.reports.answers import evaluation_report, predicted_rows_report, registration_report
from tonnage.reports.catalog_lists import check_report, gpus_report, instances_report, models_report, offers_report
from tonnage.reports.catalog_show import show_report
from tonnage.reports.environment import Check, ImportAccount, doctor_report, import_report, settings_report
from tonnage.workload.known import known_records

DOC = Path(__file__).parents[2] / "docs" / "json.md"
CATALOG = load_catalog()
JUDGED = {
    "run": "one", "task": "mlp", "split": "file", "data": "a.csv", "samples": 2, "metrics": {"accuracy": 0.5},
    "baseline": {"majority_accuracy": 0.5}, "seconds": 0.1, "device": "cpu", "precision": "fp32",
}  # fmt: skip
PREDICTED = {
    "run": "one", "rows": 3, "resumed_at_row": 1, "seconds": 0.1, "rows_per_s": 20.0, "device": "cpu", "data": "a.csv",
    "out": "b.jsonl",
}  # fmt: skip
REGISTERED = {"run": "one", "name": "m", "version": "1", "alias": None, "new": True, "registry": "sqlite:///a.db"}
REPORTS: list[Report] = [
    evaluation_report(JUDGED),
    predicted_rows_report(PREDICTED),
    registration_report(REGISTERED),
    gpus_report(CATALOG, CATALOG.accelerators, top=None),
    instances_report(CATALOG, CATALOG.instance_types, top=None),
    offers_report(CATALOG, CATALOG.offers, top=None),
    models_report(tuple(known_records().values()), top=None),
    check_report(CATALOG, check_catalog(CATALOG, as_of=CATALOG.built_on), top=None),
    show_report(describe(CATALOG, "p5.48xlarge")),
    show_report(describe(CATALOG, "H100-SXM")),
    settings_report((("home", "/x", "default"),), origin=True),
    doctor_report((Check(name="python", status="ok", found="3.11"),)),
    import_report(
        ImportAccount(folder="f", source="s", instance_types=1, offers=2, rows_read=3, rows_used=2, dropped=(("x", 1),))
    ),
]


def section(schema: str) -> str:
    text = DOC.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(schema)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/json.md has no section {schema}"
    return found[1]


def assert_documented(text: str) -> None:
    document = json.loads(text)
    described = section(document["schema"])
    missing = [key for key in document if f"`{key}`" not in described]
    assert not missing, f"{document['schema']}: {missing} stand in the JSON but not in docs/json.md"


@pytest.mark.parametrize("report", REPORTS, ids=range(len(REPORTS)))
def test_every_top_level_key_is_described(report: Report) -> None:
    """Each document's schema has a section, and each of its top-level keys stands there."""
    assert_documented(render_report(report, "json"))


def test_plan_size_and_explain_are_described(plan: Plan, size_report: SizeReport) -> None:
    """The same for the three documents that other programs read most."""
    for text in (render_plan(plan, "json"), render_size(size_report, "json"), render_explain(plan, None, (), "json")):
        assert_documented(text)


def test_keys_of_options_and_refusals_are_described(plan: Plan) -> None:
    """What stands inside `options[]` and `refused[]` is described too."""
    document = json.loads(render_plan(plan, "json"))
    described = section("tonnage/plan@1")
    for key in (*document["options"][0], *document["options"][0]["run"], *document["refused"][0]):
        assert f"`{key}`" in described, key


@pytest.mark.parametrize("report", REPORTS, ids=range(len(REPORTS)))
@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_every_report_has_every_form(report: Report, form: str) -> None:
    """Each report renders in each form, on the real catalog."""
    assert render_report(report, form).endswith("\n")
