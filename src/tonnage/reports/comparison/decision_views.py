"""The decision tree as text, as Mermaid and as nested nodes, with the way that was taken."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.comparison.decision import Decision
from tonnage.comparison.rules import Rules
from tonnage.reports.comparison.sections import Node, Tree

SEEN = " (its answers: see there)"


def decision_tree(decision: Decision) -> Tree:
    """All three views. A question that several ways lead to is opened once, on the way taken where it is on it."""
    return Tree(
        root=_Opener(decision).node(decision.rules.start, "", on_way=True),
        text="\n".join(_text_lines(_Opener(decision).node(decision.rules.start, "", on_way=True), "")) + "\n",
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


class _Opener:
    """Makes nodes, each question's answers once."""

    def __init__(self, decision: Decision) -> None:
        self.rules, self.taken = decision.rules, _taken(decision)
        self.on_way = {step.question.name for step in decision.steps}
        self.opened: set[str] = set()

    def node(self, name: str, answer: str, *, on_way: bool) -> Node:
        if name in self.rules.leaves:
            return Node(text=self.rules.leaves[name].say, answer=answer, taken=on_way)
        ask = self.rules.questions[name].ask
        if name in self.opened or (name in self.on_way and not on_way):
            return Node(text=ask + SEEN, answer=answer, taken=on_way)
        self.opened.add(name)
        children = tuple(
            self.node(target, branch, on_way=on_way and (name, branch) in self.taken)
            for branch, target in _branches(self.rules, name)
        )
        return Node(text=ask, answer=answer, taken=on_way, children=children)


def _text_lines(node: Node, indent: str) -> Iterator[str]:
    if not node.children:
        yield f"{indent}=> {node.text}{'   <== where these rules lead' if node.taken else ''}"
        return
    yield f"{indent}{node.text}"
    for child in node.children:
        yield f"{indent}|- {child.answer.upper()}{' *' if child.taken else ''}"
        yield from _text_lines(child, f"{indent}|   ")


def mermaid(decision: Decision) -> str:
    """A flowchart; the way taken is drawn thick."""
    rules, taken = decision.rules, _taken(decision)
    ids = {name: f"n{place}" for place, name in enumerate([*rules.questions, *rules.leaves])}
    lines = ["flowchart TD"]
    lines += [f'  {ids[name]}{{"{quoted(one.ask)}"}}' for name, one in rules.questions.items()]
    lines += [f'  {ids[name]}["{quoted(one.say)}"]' for name, one in rules.leaves.items()]
    for name in rules.questions:
        for branch, target in _branches(rules, name):
            arrow = "==>" if (name, branch) in taken else "-->"
            lines.append(f"  {ids[name]} {arrow}|{branch}| {ids[target]}")
    if decision.leaf is not None:
        lines.append(f"  style {ids[decision.leaf.name]} stroke-width:4px")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Text inside Mermaid's double quotes."""
    for mark, entity in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(mark, entity)
    return text.replace("\n", " ")
