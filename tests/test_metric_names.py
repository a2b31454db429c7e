"""The registry of metric names: OpenMetrics' rules, and that whoever shows a metric takes it from there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tonnage.metric_names import GROUPS, REGISTRY, Metric, find_metric
from tonnage.metric_names.reference import render_metric_reference

SOURCE = Path(__file__).parents[1] / "src" / "tonnage"
NOT_METRICS = {  # the last: what a recording rule makes of two of them
              "tonnage_run", "tonnage_login", "tonnage_token", "tonnage_session", "tonnage_service", "tonnage_result",
               "tonnage_begin",
               "tonnage_requests_inside"}  # fmt: skip


SCALED: Final = ("_ms", "_gib", "_gb", "_mb", "_kb", "_percent", "_kwh", "_mw", "_mhz", "_minutes", "_hours")
_NAME: Final = re.compile(r"tonnage(_[a-z0-9]+)+")


def name_faults(metrics: Mapping[str, Metric]) -> Iterator[str]:
    """What is wrong with names: OpenMetrics' rules, base units, predictions that are not there.

    Source: OpenMetrics 1.0, «Metric Naming» and «Units and Base Units».
    """
    for name, one in metrics.items():
        if not _NAME.fullmatch(name):
            yield f"{name}: not words in lower case behind `tonnage`"
        if name.endswith("_total") != (one.kind == "counter"):
            yield f"{name}: `_total` is the ending of counters, and of nothing else"
        if one.family.endswith(SCALED):
            yield f"{name}: a scaled unit"
        if not one.help:
            yield f"{name}: no meaning"
        if one.predicted is not None and "end" not in metrics[one.predicted].labels:
            yield f"{name}: its prediction {one.predicted} has no ends"


def test_names_follow_openmetrics() -> None:
    """Words in lower case, base units, `_total` for counters alone, predictions with ends; no name twice."""
    assert list(name_faults(REGISTRY)) == []
    assert sum(len(group) for group in GROUPS.values()) == len(REGISTRY)


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (Metric(name="tonnage_run_ms", kind="gauge", help="x"), "a scaled unit"),
        (Metric(name="tonnage_runs_total", kind="gauge", help="x"), "ending of counters"),
        (Metric(name="tonnage_runs", kind="counter", help="x"), "ending of counters"),
        (Metric(name="Tonnage_Runs", kind="gauge", help="x"), "lower case"),
        (Metric(name="tonnage_runs", kind="gauge", help=""), "no meaning"),
        (Metric(name="tonnage_runs", kind="gauge", help="x", predicted="tonnage_runs"), "no ends"),
    ],
)
def test_wrong_names_are_found(one: Metric, fault: str) -> None:
    """The rule itself is not empty."""
    assert any(fault in said for said in name_faults({one.name: one}))


def test_every_name_in_the_source_is_registered() -> None:
    """A text that is a name of ours, anywhere in the source, is one of the registry or a part of a histogram; names
    that are put together are looked up when they are."""
    found: dict[str, str] = {}
    for path in (one for one in SOURCE.rglob("*.py") if one.parent.name != "metric_names"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "tonnage_" in text else ():  # most modules name none
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in re.findall(r"(?<![\w.@/-])tonnage_[a-z0-9_]*[a-z0-9]\b(?!\.)", node.value):
                    found[name] = str(path.relative_to(SOURCE))
    unknown = {name: where for name, where in found.items() if find_metric(name) is None and name not in NOT_METRICS}
    assert unknown == {}


def test_units_are_read_off_names() -> None:
    """The longest ending counts; a name of nothing but words is a plain number."""
    assert REGISTRY["tonnage_service_usd_per_1000_requests"].unit == "{USD}/{1000 requests}"
    assert REGISTRY["tonnage_gpu_energy_joules_total"].unit == "J"
    assert REGISTRY["tonnage_run_loss"].unit == ""


def test_what_is_asked_of_runs_and_services_has_a_prediction_beside_it() -> None:
    """Throughput, memory, time and money of a run; money of a service."""
    for name in ("run_samples_per_second", "run_peak_allocated_bytes", "run_elapsed_seconds", "run_spend_usd_total",
                 "run_cost_usd_per_epoch", "service_usd_per_1000_requests", "service_cost_usd_per_hour"):  # fmt: skip
        assert REGISTRY[f"tonnage_{name}"].predicted in REGISTRY


def test_the_reference_is_fresh() -> None:
    """docs/metrics.md is what the registry renders; `python -m tonnage.metric_names.reference` writes it."""
    page = Path(__file__).parents[1] / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8") == render_metric_reference()
