"""What readers of hand-written comparisons look for, and where the redone report answers it.

Each row: what is looked for, the section, the row, label or heading in it, how many of the alternatives compared must
have an answer other than «not known» (0: the heading has content of its own).
"""

from __future__ import annotations

import json
from functools import lru_cache

import pytest
from tests.comparison.shipped import compared_example

from tonnage.reports.blocks import Bullets, Pairs, Table
from tonnage.reports.comparison.content import build_sections
from tonnage.reports.comparison.figures import UNKNOWN
from tonnage.reports.comparison.report import render_comparison
from tonnage.reports.comparison.sections import Chart, Checks, CodePart, Section, Subheading, Tree

MACHINES, TOKENS, TREES = "gcp-h100-vs-databricks", "bert-databricks-vs-bedrock", "h2o-vs-pytorch"
ANSWERS = [
    # own H100 machines beside a managed Spark platform
    (MACHINES, "which accelerators", "matrix", "Hardware", 3),
    (MACHINES, "who scales", "matrix", "Scaling", 3),
    (MACHINES, "where data lies", "matrix", "Storage", 3),
    (MACHINES, "links between machines", "matrix", "Network", 3),
    (MACHINES, "minutes until it runs", "matrix", "Set-up time", 3),
    (MACHINES, "versions of code", "matrix", "Code management", 3),
    (MACHINES, "sharing", "matrix", "Collaboration", 3),
    (MACHINES, "libraries and notebooks", "matrix", "Development environment", 3),
    (MACHINES, "record of runs", "matrix", "Experiment tracking", 3),
    (MACHINES, "record of models", "matrix", "Model registry", 3),
    (MACHINES, "order of steps", "matrix", "Pipelines", 3),
    (MACHINES, "bill for machines", "matrix", "Billing: compute", 3),
    (MACHINES, "bill for data at rest", "matrix", "Billing: storage", 3),
    (MACHINES, "bill for data in motion", "matrix", "Billing: network", 3),
    (MACHINES, "time to train", "matrix", "Training speed", 3),
    (MACHINES, "time to train, like for like", "performance", "Memory, and the fastest way", 0),
    (MACHINES, "time to answer", "matrix", "Latency", 3),
    (MACHINES, "busy hardware", "matrix", "Utilisation", 3),
    (MACHINES, "release and recovery", "matrix", "Deployment", 3),
    (MACHINES, "watching", "matrix", "Monitoring", 3),
    (MACHINES, "new versions", "matrix", "Updates", 3),
    (MACHINES, "who may do what", "matrix", "Access control", 3),
    (MACHINES, "keys and backup", "matrix", "Data protection", 3),
    (MACHINES, "audits", "matrix", "Compliance", 3),
    (MACHINES, "audits by name", "matrix", "SOC 2", 2),
    (MACHINES, "strong points of the one", "trade-offs", "GCP H100, self-managed", 0),
    (MACHINES, "strong points of the other", "trade-offs", "Databricks, A100 clusters", 0),
    (MACHINES, "phases of a move, with commands", "migration", "Acceptance checks", 0),
    (MACHINES, "ways to pay less on own machines", "levers", "GCP H100, self-managed", 0),
    (MACHINES, "ways to pay less on the platform", "levers", "Databricks, A100 clusters", 0),
    (MACHINES, "what to do within weeks and months", "recommendation", "What to do within each horizon", 0),
    (MACHINES, "what to tick off", "migration", "Action items", 0),
    # a managed platform beside a token API
    (TOKENS, "short answer", "summary", "What would change it", 0),
    (TOKENS, "what each is for", "matrix", "Purpose", 4),
    (TOKENS, "may BERT be tuned", "matrix", "Fine-tuning support", 4),
    (TOKENS, "time until it is there", "matrix", "Set-up time", 4),
    (TOKENS, "what must be learned", "matrix", "Learning curve", 4),
    (TOKENS, "what is billed", "matrix", "Cost structure", 4),
    (TOKENS, "who holds the data", "matrix", "Data control", 4),
    (TOKENS, "freedom to change models", "matrix", "Choice of model and size", 4),
    (TOKENS, "who runs machines", "matrix", "Infrastructure management", 4),
    (TOKENS, "work to connect", "matrix", "Integration", 4),
    (TOKENS, "room to grow", "matrix", "Scalability", 4),
    (TOKENS, "preparation of data", "matrix", "Data processing", 4),
    (TOKENS, "record of runs", "matrix", "Experiment tracking", 4),
    (TOKENS, "rules", "matrix", "SOC 2 (must be met)", 4),
    (TOKENS, "when the platform, for which uses", "when", "Databricks", 0),
    (TOKENS, "when the API, for which uses", "when", "Amazon Bedrock", 0),
    (TOKENS, "what stands where", "matrix", "Where it runs", 4),
    (TOKENS, "from data to training", "matrix", "Way of the data", 4),
    (TOKENS, "training drawn", "matrix", "Way of a training job", 4),
    (TOKENS, "serving drawn", "matrix", "Way of a request", 4),
    (TOKENS, "setting up in dollars", "matrix", "Set-up cost", 4),
    (TOKENS, "a month in dollars, line by line", "costs", "Lines of the cheapest way", 0),
    (TOKENS, "from which volume", "volume", "Break-even", 0),
    (TOKENS, "time to train", "matrix", "Training speed", 2),
    (TOKENS, "time to answer", "matrix", "Latency", 3),
    (TOKENS, "requests a second", "performance", "Memory, and the fastest way", 0),
    (TOKENS, "how good the answers are", "matrix", "Quality of answers", 4),
    (TOKENS, "the tree, and what would change it", "decision", "What would lead the rules elsewhere", 0),
    (TOKENS, "moving either way", "moves", "Databricks", 1),
    (TOKENS, "moving back", "moves", "Amazon Bedrock", 1),
    (TOKENS, "firms of each size", "recommendation", "of any size", 1),
    (TOKENS, "both at once", "hybrid", "bert-serving", 1),
    (TOKENS, "doing well on the platform", "practice", "Databricks", 0),
    (TOKENS, "doing well with the API", "practice", "Amazon Bedrock", 0),
    # boosted trees on Spark beside a neural network
    (TREES, "what runs where", "scope", "H2O Sparkling Water", 1),
    (TREES, "commands to try it", "practice", "Try it: H2O Sparkling Water", 0),
    (TREES, "commands to try the other", "practice", "Try it: PyTorch", 0),
    (TREES, "setting up", "matrix", "Set-up time", 2),
    (TREES, "versions that fit", "matrix", "Development environment", 2),
    (TREES, "start of processes and devices", "matrix", "Start of a run", 2),
    (TREES, "data to the device", "matrix", "Loading of data", 2),
    (TREES, "the training itself", "matrix", "Training loop", 2),
    (TREES, "strong points of trees", "when", "H2O Sparkling Water", 0),
    (TREES, "strong points of networks", "when", "PyTorch", 0),
    (TREES, "speed", "matrix", "Training speed", 2),
    (TREES, "more devices", "matrix", "Scalability", 2),
    (TREES, "memory", "performance", "Memory, and the fastest way", 0),
    (TREES, "busy GPUs", "matrix", "Utilisation", 2),
    (TREES, "which for which data", "when", "suits", 1),
]  # fmt: skip


@lru_cache
def sections(example: str) -> dict[str, Section]:
    """The report of a shipped example, by section."""
    return {section.key: section for section in build_sections(compared_example(example))}


def after(section: Section, heading: str) -> list[object]:
    """What stands under a subheading."""
    parts = list(section.parts)
    start = next(
        (place for place, part in enumerate(parts) if isinstance(part, Subheading) and part.text == heading), None
    )
    if start is None:
        return []
    rest = parts[start + 1 :]
    stop = next((place for place, part in enumerate(rest) if isinstance(part, Subheading)), len(rest))
    return list(rest[:stop])


def cells_of(section: Section, label: str) -> list[str]:
    """The cells of every row, and the values of every pair, that begin with `label`."""
    out: list[str] = []
    for part in section.parts:
        rows = part.rows if isinstance(part, (Table, Pairs)) else ()
        out += [cell for row in rows if row[0] == label for cell in row[1:]]
    return out


@pytest.mark.parametrize(("example", "looked_for", "key", "label", "alternatives"), ANSWERS)
def test_it_is_answered(example: str, looked_for: str, key: str, label: str, alternatives: int) -> None:
    """The place exists and says something for as many alternatives as it must."""
    section = sections(example)[key]
    if alternatives == 0:
        content = [
            part for part in after(section, label) if isinstance(part, (Bullets, Pairs, Table, Checks, CodePart, Tree))
        ]
        assert content, looked_for
        assert all(part.items for part in content if isinstance(part, (Bullets, Checks)))
        assert all(part.rows for part in content if isinstance(part, (Pairs, Table)))
        return
    answered = [cell for cell in cells_of(section, label) if cell and not cell.startswith(UNKNOWN)]
    assert len(answered) >= alternatives, looked_for


@pytest.mark.parametrize("example", [MACHINES, TOKENS, TREES])
def test_no_section_is_bare(example: str) -> None:
    """Every section has content besides its remarks."""
    for section in sections(example).values():
        assert any(isinstance(part, (Bullets, Pairs, Table, Chart, Tree)) for part in section.parts), section.key


def test_rates_of_different_learners_are_not_scored() -> None:
    """Trees and a network over one table: their passes are different work, so the rate is shown without a score."""
    found = compared_example(TREES)
    assert all(found.totals[name].throughput_per_s is not None for name in found.title_of)
    assert all("throughput" not in scores for scores in found.scores.values())
    assert all("speed" in scores for scores in found.scores.values())


def test_databricks_and_bedrock_are_answered() -> None:
    """Databricks and Bedrock for BERT: both have a cost, what is estimated or another model says so."""
    found = json.loads(render_comparison(compared_example(TOKENS), "json"))
    alternatives = {one["name"]: one for one in found["things"]}
    for name in ("databricks", "bedrock"):
        assert alternatives[name]["usd_per_month"]["value"] > 0
    serving = next(one for one in alternatives["databricks"]["works"] if one["work"] == "bert-serving")
    assert any(risk["kind"] == "estimated fee" for risk in serving["option"]["risk_values"])
    assert serving["usd_per_month"]["low"] < serving["usd_per_month"]["value"] < serving["usd_per_month"]["high"]
    tuning = next(one for one in alternatives["bedrock"]["works"] if one["work"] == "bert-finetune")
    assert tuning["option"]["instance_type"] == "nova-micro"
    assert {one["thing"]: one["kind"] for one in found["answer"]["out"]}["bedrock"] == "another model"
    asked = next(one for one in alternatives["bedrock"]["works"] if one["work"] == "bert-serving")
    quantities = {line["what"].split(" ")[0]: float(line["quantity"]) for line in asked["option"]["ledger"]}
    assert quantities["output"] >= 52.56  # a token for each of 52.56 million requests
    assert quantities["input"] > 52.56 * 48
    served = found["split"]["places"]
    assert served["bert-serving"] != "bedrock"
