"""The three views of a decision tree."""

from __future__ import annotations

from tonnage.comparison.decision import Fact, decide
from tonnage.comparison.rules import packaged_rules, parse_rules
from tonnage.reports.comparison.decision_views import SEEN, decision_tree
from tonnage.reports.comparison.sections import Node

HOSTILE = """
name: marks
title: t
about: a
source: s
start: q
questions:
  q: {ask: "Is \\"5\\" > 3 & <b>?", fact: team_size, above: 3, yes: a, no: b}
leaves:
  a: {say: "Yes | <i>", because: x}
  b: {say: No, because: x}
"""


def questions(node: Node) -> list[str]:
    return [node.text] * bool(node.children) + [text for child in node.children for text in questions(child)]


def test_each_question_is_opened_once() -> None:
    """Also where several ways lead to it; the way taken runs to its leaf, and no question is missing."""
    rules = packaged_rules()["computed-cost"]
    given = {"can_do.any": True, "can_do.count": 2.0, "team_size": 9.0}
    decision = decide(rules, {name: Fact(value=value, origin="x") for name, value in given.items()})
    tree = decision_tree(decision)
    opened = questions(tree.root)
    assert sorted(opened) == sorted({one.ask for one in rules.questions.values()})
    node, asked = tree.root, []
    while node.children:
        asked.append(node.text)
        node = next(child for child in node.children if child.taken)
    assert asked == [step.question.ask for step in decision.steps]
    assert decision.leaf is not None
    assert node.text == decision.leaf.say
    assert tree.text.count("<== where these rules lead") == 1
    assert SEEN in tree.text


def test_mermaid_has_every_node_and_arrow() -> None:
    """One line a node, one an answer; the way is thick."""
    rules = packaged_rules()["seed-databricks-bedrock"]
    facts = {"custom_fine_tuning": False, "requests_per_month": 5.0, "complex_preprocessing": False}
    text = decision_tree(decide(rules, {name: Fact(value=value, origin="x") for name, value in facts.items()})).mermaid
    assert text.count("==>") == 3
    assert text.count("-->") == 3
    assert text.count('{"') == len(rules.questions)
    assert text.count('["') == len(rules.leaves)


def test_marks_do_not_break_mermaid() -> None:
    """Quotes and angle brackets become entities."""
    text = decision_tree(decide(parse_rules(HOSTILE), {"team_size": Fact(value=5.0, origin="x")})).mermaid
    assert 'n0{"Is #quot;5#quot; #gt; 3 #amp; #lt;b#gt;?"}' in text
    assert "<" not in text
