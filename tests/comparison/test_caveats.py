"""What stands below the summary: rules and score apart, hours that make the cost, moves that do not pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.decision import way_to
from tonnage.comparison.rules import packaged_rules
from tonnage.reports.blocks import Pairs
from tonnage.reports.comparison.caveats import caveats
from tonnage.reports.comparison.guidance import choosing_section, horizon_steps


def said(found: Comparison) -> str:
    return "\n".join(caveats(found))


def test_rules_and_score_apart(compared: Callable[..., Comparison], standard: str) -> None:
    """Named where they choose two things, silent where they agree."""
    found = compared(standard.replace("custom_fine_tuning: false", "custom_fine_tuning: true"))
    best = found.ranking[0].thing
    assert ("The rules choose" in said(found)) == (found.chosen != best)
    assert "The rules choose" not in said(replace(found, chosen=best))


def test_hours_that_make_the_cost(compared: Callable[..., Comparison], standard: str) -> None:
    """2,000 of 2,300 dollars are people: told. Without a rate no share is known: silent."""
    assert "Self-managed GPU machines on AWS 87 %" in said(compared())
    assert "People-hours" not in said(compared(standard.replace(", usd_per_hour: 100", "")))


def test_a_move_that_does_not_pay_within_the_horizon(compared: Callable[..., Comparison]) -> None:
    """Told with both costs and when it pays; silent where the choice is to stay."""
    found = compared()
    last = [one for one in found.advice if one.size.name == "mid-size"][-1]
    assert last.choice is not None
    stay, go = last.costs["self-managed-aws"], last.costs[last.choice]
    assert stay is not None
    assert go is not None
    dearer = last.choice != "self-managed-aws" and go.value > stay.value
    assert ("the score prefers the move" in said(found)) == dearer
    stays = tuple(replace(one, choice="self-managed-aws") for one in found.advice)
    assert "the score prefers the move" not in said(replace(found, advice=stays))


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
    """The thing that the rules choose is shown with the answers given, not with the shortest ones."""
    text = standard.replace("custom_fine_tuning: false", "custom_fine_tuning: true")
    section = choosing_section(compared(text))
    ways = [row[1] for part in section.parts if isinstance(part, Pairs) for row in part.rows if "lead here" in row[0]]
    assert any("Do you need custom BERT fine-tuning with your own data? yes." in way for way in ways)


def test_those_that_are_level_lead_together(compared: Callable[..., Comparison]) -> None:
    """Grounds on which several are level disagree only where no thing leads by all of them; all leaders are named."""
    found = compared()
    agreed = replace(found, leaders=(("cost", ("sagemaker",)), ("what is judged", ("databricks", "sagemaker"))))
    assert "The grounds disagree" not in said(agreed)
    apart = replace(found, leaders=(("cost", ("self-managed-aws",)), ("what is judged", ("databricks", "sagemaker"))))
    assert "what is judged: Databricks <b> and Amazon SageMaker AI." in said(apart)


def test_two_of_one_profile_are_level(compared: Callable[..., Comparison], standard: str) -> None:
    """The same machines under two names lead by every ground together, whichever name comes first."""
    twice = "  - {name: aa, profile: databricks}\n  - {name: bb, profile: databricks}\n"
    text = standard.replace('  - {name: databricks, title: "Databricks <b>"}\n', twice)
    text = text.replace("to: databricks", "to: aa")
    leaders = dict(compared(text).leaders)
    assert leaders["what is judged"] == ("aa", "bb")
