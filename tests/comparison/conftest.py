"""Comparisons whose figures come from a planner made for the tests: they depend on this package alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.comparison.comparing import Comparison, compare
from tonnage.comparison.request import CompareRequest, parse_request
from tonnage.planning import CatalogStamp, MachineOption, Need, Plan, RunDetail
from tonnage.planning.reasons.risks import OldPriceRisk
from tonnage.pricing.ledger import Ledger, LedgerLine
from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import ServeJob, Workload
from tonnage.workload.loading import parse_workload

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
ASSUMED = (Assumption(name="gemm_peak_fraction", value=0.74, low=0.72, high=0.8, source="a fit <of ours>"),)
TRAIN = """
kind: train
name: tune
model: bert-base-uncased
data: {samples: 1000, seq_len: 128, epochs: 1}
"""
SERVE = """
kind: serve
name: answer
model: bert-base-uncased
serve: {rate_per_s: 10, input_tokens: 64, p95_latency: 500ms}
"""
USD = {"vm": 10.0, "databricks": 14.0, "sagemaker": 12.0, "vertex": 12.0, "bedrock": 2.0}  # a job; a month at 1/s
REQUEST = """
kind: compare
title: A & B <compared>
compare:
  - self-managed-aws
  - {name: databricks, title: "Databricks <b>"}
  - sagemaker
workloads: [{file: tune.yaml, jobs_per_month: 30}]
organisation: {employees: 120, team_size: 4, ml_expertise: some, ops_expertise: some, usd_per_hour: 100}
rules: seed-databricks-bedrock
needs: {custom_fine_tuning: false, complex_preprocessing: false}
migration: {from: self-managed-aws, to: databricks, start: 2026-12-01, people: 2}
"""


def around(value: float) -> Figure:
    return Figure(value=value, low=0.8 * value, high=1.5 * value)


def fake_plan(workload: Workload, _: Catalog) -> Plan:
    """One option: a price by platform, a floor for a service on machines; none for a service on Databricks."""
    platform = (workload.constraints.platforms or ("vm",))[0]
    service = isinstance(workload.job, ServeJob)
    usd = USD[platform]
    if isinstance(workload.job, ServeJob):
        usd *= workload.job.rate_per_s
        usd = usd if platform == "bedrock" else max(50.0, 0.05 * usd)
    line = LedgerLine(
        what=f"compute <{platform}>", part="machines", quantity=Decimal(1), unit="instance-hour",
        usd_per_unit=Decimal(repr(usd)), source="a list | of prices", read_on=date(2026, 7, 20),
    )  # fmt: skip
    run = RunDetail(
        layout="1 GPU",
        layout_fields=(),
        time_s=None if service else around(360.0),
        time_parts=(),
        time_parts_of="step",
        memory_gib=around(4.0),
        memory_parts_gib=(("weights", 1.0), ("working_weights", 3.0)),
        memory_available_gib=15.0,
        rates=(("samples_per_s", around(500.0)),),
        latency_p95_s=around(0.2) if service else None,
        utilisation=0.5 if service else None,
    )
    option = MachineOption(
        rank=1,
        provider="aws",
        instance_type="g4dn.xlarge",
        region="us-east-1",
        purchase="on_demand",
        count=1,
        gpu="T4",
        gpu_count=1.0,
        usd_per_instance_hour=usd,
        price_read_on=date(2026, 7, 20),
        time_s=run.time_s,
        cost_usd=around(usd),
        ledger=Ledger(lines=(line,)),
        run=run,
        risks=(OldPriceRisk(age_days=123),),
        pareto=True,
        loses_by=None,
        platform=platform,
    )
    able = not (service and platform == "databricks")
    stamp = CatalogStamp(
        snapshot="2026-11-20", built_on=date(2026, 11, 20), oldest_price=date(2025, 4, 4), undated_prices=3, offers=1100
    )
    return Plan(
        name=workload.name, kind=workload.kind, summary=(), objective="cost", as_of=AS_OF,
        horizon="month" if service else "job", need=Need(figures=()), options=(option,) if able else (), refused=(),
        catalog=stamp, notes=(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def workloads(catalog: Catalog) -> dict[str, Workload]:
    """By name of file."""
    texts = {"tune.yaml": TRAIN, "answer.yaml": SERVE}
    read = {
        name: parse_workload(text, file=None, folder=None, as_of=AS_OF, catalog=catalog) for name, text in texts.items()
    }
    return {name: replace(one, name=name.removesuffix(".yaml"), file=f"<{name}>") for name, one in read.items()}


@pytest.fixture(scope="session")
def ask() -> Callable[..., CompareRequest]:
    """A request from text, the standard one by default."""

    def make(text: str = REQUEST, **changes: Any) -> CompareRequest:
        return replace(parse_request(text, file="some.tonnage.yaml", folder=Path()), **changes)

    return make


@pytest.fixture(scope="session")
def compared(
    catalog: Catalog, workloads: dict[str, Workload], ask: Callable[..., CompareRequest]
) -> Callable[..., Comparison]:
    """A whole comparison of a text."""

    def make(text: str = REQUEST) -> Comparison:
        request = ask(text)
        named = [workloads[work.file.name] for work in request.works]
        return compare(request, named, catalog, fake_plan, as_of=AS_OF, assumptions=ASSUMED)

    return make


@pytest.fixture(scope="session")
def planned() -> Callable[[Workload, Catalog], Plan]:
    """The plan that comparisons of tests stand on."""
    return fake_plan


@pytest.fixture(scope="session")
def standard() -> str:
    """The text of the standard request."""
    return REQUEST
