"""What a platform cannot do with the model asked for; one model tuned and served; fees estimated from their parts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.comparison.shipped import compared_example

from tonnage import api
from tonnage.catalog import load_catalog
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.splitting import best_split
from tonnage.planning import Plan
from tonnage.planning.reasons.risks import EstimatedFeeRisk
from tonnage.pricing.fee_estimates import StatedRatio, UnitsOfJobs
from tonnage.reports.ledger_blocks import source_words
from tonnage.workload import load_workload

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[2] / "examples"


def bert() -> Comparison:
    return compared_example("bert-databricks-vs-bedrock")


def plan(file: str, platform: str) -> Plan:
    workload = load_workload(EXAMPLES / file, catalog=load_catalog(), as_of=AS_OF)
    limits = replace(workload.constraints, platforms=(platform,))  # type: ignore[arg-type]
    return api.plan(replace(workload, constraints=limits)).plan


def test_another_model_is_shown_and_never_the_answer() -> None:
    """Bedrock costs least and tunes another model than BERT: priced, out, and named under what would change it."""
    found = bert()
    total = found.totals["bedrock"]
    assert total.usd_per_month is not None
    assert total.can_do
    assert not total.as_asked
    out = found.answer.verdict.out_of("bedrock")
    assert out is not None
    assert (out.kind, out.work) == ("another model", "bert-finetune")
    assert found.answer.choice != "bedrock"
    assert [one.then for one in found.answer.changes if one.kind == "another model"] == ["bedrock"]


def test_a_split_serves_the_model_that_is_tuned() -> None:
    """Serving by tokens costs a fourth of machines; but BERT is tuned, so BERT is served."""
    found = bert()
    rows = {name: {row.work: row for row in total.rows} for name, total in found.totals.items()}
    costs = [rows[name]["bert-serving"].usd_per_month for name in ("bedrock", "self-managed-aws")]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[0].value < 0.5 * costs[1].value
    assert found.split.cheapest is not None
    assert "bedrock" not in dict(found.split.cheapest.places).values()
    apart = {
        name: replace(total, rows=tuple(replace(row, model=row.work) for row in total.rows))
        for name, total in found.totals.items()
    }
    answer = found.answer
    served = best_split(apart, answer.inputs, answer.verdict, lambda name, _: found.entries[name]).cheapest
    assert served is not None
    assert dict(served.places)["bert-serving"] == "bedrock", "where another model is tuned, tokens cost least"


@pytest.mark.parametrize(
    ("file", "platform"),
    [("compare/bert-serving.tonnage.yaml", "databricks"), ("compare/bert-serving.tonnage.yaml", "vertex")],
)
def test_endpoints_are_estimated_where_they_are_asked_for(file: str, platform: str) -> None:
    """Databricks Model Serving and Vertex AI endpoints have a price with its range and its parts, marked as such."""
    best = plan(file, platform).best
    assert best is not None
    (risk,) = [one for one in best.risks if isinstance(one, EstimatedFeeRisk)]
    assert 0 < risk.low_usd_per_instance_hour < risk.usd_per_instance_hour < risk.high_usd_per_instance_hour
    (line,) = [one for one in best.ledger.lines if one.what.startswith(risk.line)]
    assert isinstance(line.source, UnitsOfJobs if platform == "databricks" else StatedRatio)
    assert source_words(line).startswith("estimate: ")


def test_sagemaker_has_spot_and_new_machines() -> None:
    """Managed spot and machines that no price list of ours holds are estimated; a listed price is never replaced."""
    found = plan("bert-finetune.tonnage.yaml", "sagemaker").options
    guessed = {(one.instance_type.split(".")[0], one.purchase) for one in found
               if any(isinstance(risk, EstimatedFeeRisk) for risk in one.risks)}  # fmt: skip
    assert ("g6e", "on_demand") in guessed
    assert ("g4dn", "spot") in guessed
    listed = {price.instance_type for price in load_catalog().managed.ml_instances}
    assert not any(
        one.instance_type in listed
        and one.purchase == "on_demand"
        and one.region == "us-east-1"
        and not one.instance_type.startswith(("p4", "p5"))  # listed before the cut of June 2025, sold after it
        for one in found
        if any(isinstance(risk, EstimatedFeeRisk) for risk in one.risks)
    )


def test_nothing_is_estimated_unasked() -> None:
    """A plan over all platforms keeps to prices that were read."""
    workload = load_workload(EXAMPLES / "bert-finetune.tonnage.yaml", catalog=load_catalog(), as_of=AS_OF)
    options = api.plan(workload).plan.options
    assert not any(isinstance(risk, EstimatedFeeRisk) for one in options for risk in one.risks)


def test_a_prompt_and_an_answer_are_counted() -> None:
    """A generative model in an encoder's place reads its task and writes at least one token."""
    workload = load_workload(EXAMPLES / "compare" / "bert-serving.tonnage.yaml", catalog=load_catalog(), as_of=AS_OF)
    read, written = workload.buy.tokens.of_request(workload.job.requests)  # type: ignore[union-attr]
    assert read > 48
    assert written >= 1
