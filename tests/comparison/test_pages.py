"""The YAML that the pages show is what the program reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tonnage.comparison.criteria import load_criteria
from tonnage.comparison.profiles import load_profiles
from tonnage.comparison.request import RequestFile, parse_request
from tonnage.comparison.rules import FACTS, packaged_rules, parse_rules

DOCS = Path(__file__).parents[2] / "docs"


def shown(page: str) -> str:
    """The one YAML block of a page."""
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def test_the_compare_file_of_the_page() -> None:
    """It is read, and its narrowed alternatives are."""
    request = parse_request(shown("compare.md"), file="page", folder=Path())
    assert [alternative.name for alternative in request.alternatives] == [
        "databricks",
        "aws-h100",
        "graviton",
        "on-premise",
    ]


def test_the_profile_of_the_page(tmp_path: Path) -> None:
    """It joins the shipped ones as a file of one's own."""
    (tmp_path / "acme.yaml").write_text(shown("adding-a-platform.md"))
    assert load_profiles([tmp_path])["acme-gpu"].scope.providers == ("acme",)


def test_the_rules_of_the_page() -> None:
    """They have no circle and no dead end."""
    assert set(parse_rules(shown("decision-rules.md")).leaves) == {"machines", "tokens"}


@pytest.mark.parametrize("fact", sorted(FACTS))
def test_every_fact_is_on_the_page(fact: str) -> None:
    """Rules can be written from the page alone."""
    assert f"`{fact}`" in (DOCS / "decision-rules.md").read_text()


def test_every_key_is_on_the_page() -> None:
    """So can compare files."""
    text = (DOCS / "compare.md").read_text()
    for key in RequestFile.model_fields:
        assert f"`{key}`" in text or f"\n{key}:" in text, key
    for name in packaged_rules():
        assert f"`{name}`" in text
    assert all(criterion.title for criterion in load_criteria())
