"""The decision tree as text, as Mermaid and as nested nodes, with the way that was taken."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.comparison.decision import Decision
from tonnage.comparison.rules import Rules
from tonnage.reports.comparison.sections import Node, Tree


def decision_tree(decision: Decision) -> Tree:
    """All three views."""
    taken = _taken(decision)
    return Tree(
        root=_node(decision.rules, decision.rules.start, "", taken),
        text="\n".join(_text_lines(decision.rules, decision.rules.start, "", taken)) + "\n",
        mermaid=mermaid(decision),
    )


def _taken(decision: Decision) -> frozenset[tuple[str, str]]:
    """(question, answer) pairs of the way."""
    return frozenset((step.question.name, step.answer) for step in decision.steps)


def _branches(rules: Rules, name: str) -> tuple[tuple[str, str], ...]:
    one = rules.questions[name]
    found = [("yes", one.yes), ("no", one.no)]
    if one.unknown is not None:
        found.append(("unknown", one.unknown))
    return tuple(found)


def _node(rules: Rules, name: str, answer: str, taken: frozenset[tuple[str, str]], on_way: bool = True) -> Node:
    if name in rules.leaves:
        return Node(text=rules.leaves[name].say, answer=answer, taken=on_way)
    children = tuple(
        _node(rules, target, branch, taken, on_way and (name, branch) in taken)
        for branch, target in _branches(rules, name)
    )
    return Node(text=rules.questions[name].ask, answer=answer, taken=on_way, children=children)


def _text_lines(
    rules: Rules, name: str, indent: str, taken: frozenset[tuple[str, str]], on_way: bool = True
) -> Iterator[str]:
    if name in rules.leaves:
        yield f"{indent}=> {rules.leaves[name].say}{'   <== this team' if on_way else ''}"
        return
    yield f"{indent}{rules.questions[name].ask}"
    for branch, target in _branches(rules, name):
        here = on_way and (name, branch) in taken
        yield f"{indent}|- {branch.upper()}{' *' if here else ''}"
        yield from _text_lines(rules, target, f"{indent}|   ", taken, here)


def mermaid(decision: Decision) -> str:
    """A flowchart; the way taken is drawn thick."""
    rules, taken = decision.rules, _taken(decision)
    ids = {name: f"n{place}" for place, name in enumerate([*rules.questions, *rules.leaves])}
    lines = ["flowchart TD"]
    lines += [f'  {ids[name]}{{"{_quoted(one.ask)}"}}' for name, one in rules.questions.items()]
    lines += [f'  {ids[name]}["{_quoted(one.say)}"]' for name, one in rules.leaves.items()]
    for name in rules.questions:
        for branch, target in _branches(rules, name):
            arrow = "==>" if (name, branch) in taken else "-->"
            lines.append(f"  {ids[name]} {arrow}|{branch}| {ids[target]}")
    if decision.leaf is not None:
        lines.append(f"  style {ids[decision.leaf.name]} stroke-width:4px")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Text inside Mermaid's double quotes."""
    for mark, entity in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(mark, entity)
    return text.replace("\n", " ")
