"""What guides a reader beside the answer: steps within each horizon, ways through the rules, who leads by what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.decision import way_to
from tonnage.comparison.rules import packaged_rules
from tonnage.reports.blocks import Pairs
from tonnage.reports.comparison.guidance import choosing_section, horizon_steps


def test_steps_follow_the_plan(compared: Callable[..., Comparison]) -> None:
    """Within two weeks work is where it was; within a year it has moved and every phase is done."""
    found = compared()
    assert found.migration is not None
    (pairs,) = [part for part in horizon_steps(found) if isinstance(part, Pairs)]
    steps = dict(pairs.rows)
    assert "still runs on Self-managed GPU machines on AWS" in steps["short term (2 weeks)"]
    assert "work runs on Databricks" in steps["long term (52 weeks)"]
    assert "Close" in steps["long term (52 weeks)"]


@pytest.mark.parametrize("name", ["computed-cost", "seed-databricks-bedrock"])
def test_the_way_to_each_leaf(name: str) -> None:
    """Every leaf has a way, and following it leads there."""
    rules = packaged_rules()[name]
    for leaf in rules.leaves:
        way = way_to(rules, leaf)
        assert way
        node = rules.start
        for question, answer in way:
            assert node == question.name
            node = {"yes": question.yes, "no": question.no, "unknown": question.unknown}[answer] or ""
        assert node == leaf


def test_the_current_choice_shows_its_own_answers(compared: Callable[..., Comparison], standard: str) -> None:
    """The alternative that the rules choose is shown with the answers given, not with the shortest ones."""
    text = standard.replace("custom_fine_tuning: false", "custom_fine_tuning: true")
    section = choosing_section(compared(text))
    ways = [row[1] for part in section.parts if isinstance(part, Pairs) for row in part.rows if "lead here" in row[0]]
    assert any("Do you need custom BERT fine-tuning with your own data? yes." in way for way in ways)


def test_two_of_one_profile_are_level(compared: Callable[..., Comparison], standard: str) -> None:
    """The same machines under two names lead by every ground together, whichever name comes first."""
    twice = "  - {name: aa, profile: databricks}\n  - {name: bb, profile: databricks}\n"
    text = standard.replace('  - {name: databricks, title: "Databricks <b>"}\n', twice)
    text = text.replace("to: databricks", "to: aa")
    leaders = dict(compared(text).leaders)
    assert leaders["what is judged"] == ("aa", "bb")
