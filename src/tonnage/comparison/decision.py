"""A rule set applied to facts: the way taken, where each answer came from, the leaf, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tonnage.comparison.rules import Leaf, RuleQuestion, Rules, Test
from tonnage.errors import InputError
from tonnage.values import dataclass

Answer = Literal["yes", "no", "unknown"]
Value = bool | float | str | tuple[str, ...]
WORDS: Final = {"above": "above", "at_least": "at least", "below": "below", "at_most": "at most"}
_OPPOSITE: Final[dict[str, str]] = {"above": "at_most", "at_most": "above", "below": "at_least", "at_least": "below"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a rule may ask for. `value` None: not known; `origin` says where it is or would be."""

    value: Value | None
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStep:
    """One question that was asked: its answer and where that came from."""

    question: RuleQuestion
    answer: Answer
    found: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFlip:
    """What would lead elsewhere: the change, and the leaf it leads to (None: undecided, `missing` is unknown)."""

    question: str
    change: str
    leaf: Leaf | None
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome. `leaf` None: a fact is not known; `missing` names it."""

    rules: Rules
    steps: tuple[DecisionStep, ...]
    leaf: Leaf | None
    missing: str
    flips: tuple[DecisionFlip, ...]


def decide(rules: Rules, facts: Mapping[str, Fact]) -> Decision:
    """Walk the tree; then, for each question on the way, what follows from its other answer."""
    steps, leaf, missing = _walk(rules, facts, rules.start)
    return Decision(rules=rules, steps=steps, leaf=leaf, missing=missing, flips=_flips(rules, facts, steps, leaf))


def _walk(rules: Rules, facts: Mapping[str, Fact], node: str) -> tuple[tuple[DecisionStep, ...], Leaf | None, str]:
    steps: list[DecisionStep] = []
    while node in rules.questions:
        question = rules.questions[node]
        step = _ask(question, facts)
        steps.append(step)
        following = {"yes": question.yes, "no": question.no, "unknown": question.unknown}[step.answer]
        if following is None:
            return tuple(steps), None, _unknown(question, facts)
        node = following
    return tuple(steps), rules.leaves[node], ""


def way_to(rules: Rules, leaf: str) -> tuple[tuple[RuleQuestion, Answer], ...]:
    """The shortest way from the start to a leaf: questions and their answers."""
    ways: list[tuple[str, tuple[tuple[RuleQuestion, Answer], ...]]] = [(rules.start, ())]
    for node, way in ways:
        if node == leaf:
            return way
        question = rules.questions.get(node)
        if question is not None:
            targets: tuple[tuple[Answer, str | None], ...]
            targets = (("yes", question.yes), ("no", question.no), ("unknown", question.unknown))
            ways += [(target, (*way, (question, answer))) for answer, target in targets if target is not None]
    return ()


def facts_known(test: Test, facts: Mapping[str, Fact]) -> bool:
    """Whether both sides of a test are known."""
    return all(name is None or _value(name, facts) is not None for name in (test.fact, test.other_fact))


def _unknown(question: RuleQuestion, facts: Mapping[str, Fact]) -> str:
    sides = (question.test.fact, question.test.other_fact)
    return next(name for name in sides if name is not None and _value(name, facts) is None)


def _value(name: str, facts: Mapping[str, Fact]) -> Value | None:
    fact = facts.get(name)
    return None if fact is None else fact.value


def _ask(question: RuleQuestion, facts: Mapping[str, Fact]) -> DecisionStep:
    test = question.test
    names = [name for name in (test.fact, test.other_fact) if name is not None]
    origin = "; ".join(
        dict.fromkeys(facts[name].origin if name in facts else f"{name}: nothing says it" for name in names)
    )
    found = ", ".join(f"{name} = {show(_value(name, facts))}" for name in names)
    if not facts_known(test, facts):
        return DecisionStep(question=question, answer="unknown", found=found, origin=origin)
    return DecisionStep(question=question, answer="yes" if holds(test, facts) else "no", found=found, origin=origin)


def holds(test: Test, facts: Mapping[str, Fact]) -> bool:
    """Whether a test of known facts holds; InputError where a comparison meets what is no number."""
    value = _value(test.fact, facts)
    if test.operator == "is":
        return value == test.value
    if test.operator == "includes":
        return test.value in (value if isinstance(value, tuple) else (value,))
    bound = test.value if test.other_fact is None else _value(test.other_fact, facts)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isinstance(bound, (int, float)):
        raise InputError(
            f"the rules compare {test.fact} as a number, and it is {show(value)}",
            hint="ask for it with `is` or `includes`",
        )
    limit = float(bound) * test.times if test.other_fact is not None else float(bound)
    outcome = {"above": value > limit, "at_least": value >= limit, "below": value < limit, "at_most": value <= limit}
    return outcome[test.operator]


def _flips(
    rules: Rules, facts: Mapping[str, Fact], steps: tuple[DecisionStep, ...], leaf: Leaf | None
) -> tuple[DecisionFlip, ...]:
    """For each question on the way its other answers, where they lead to another leaf."""
    out = []
    for step in steps:
        answers: tuple[Answer, ...] = ("yes", "no") if step.answer == "unknown" else ("no",)
        if step.answer == "no":
            answers = ("yes",)
        for answer in answers:
            start = step.question.yes if answer == "yes" else step.question.no
            _, other, missing = _walk(rules, facts, start)
            if other is None or leaf is None or other.name != leaf.name:
                change = change_for(step.question.test, facts, wanted=answer == "yes")
                out.append(DecisionFlip(question=step.question.name, change=change, leaf=other, missing=missing))
    return tuple(out)


def change_for(test: Test, facts: Mapping[str, Fact], *, wanted: bool) -> str:
    """The change of a fact that gives a test the wanted outcome, in words."""
    now = show(_value(test.fact, facts))
    if test.operator == "is":
        if isinstance(test.value, bool):
            return f"{test.fact} is {show(test.value if wanted else not test.value)} (now {now})"
        return f"{test.fact} is {'' if wanted else 'not '}{show(test.value)} (now {now})"
    if test.operator == "includes":
        return f"{test.fact} {'includes' if wanted else 'does not include'} {test.value} (now {now})"
    operator = test.operator if wanted else _OPPOSITE[test.operator]
    if test.other_fact is None:
        return f"{test.fact} is {WORDS[operator]} {show(test.value)} (now {now})"
    other = _value(test.other_fact, facts)
    times = "" if test.times == 1 else f"{test.times:g} x "
    limit = show(other * test.times) if isinstance(other, (int, float)) else "unknown"
    return f"{test.fact} is {WORDS[operator]} {times}{test.other_fact}, that is {limit} (now {now})"


def show(value: Value | None) -> str:
    """A fact in words.

    >>> show(None), show(True), show(250000.0), show(("hipaa", "soc2")), show(())
    ('unknown', 'yes', '250,000', 'hipaa and soc2', 'none')
    """
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " and ".join(value) or "none"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.4g}"
    return value
