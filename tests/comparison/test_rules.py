"""Decision rules: faults are told; the shipped trees reach every leaf; each answer says where it came from."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tonnage.comparison.decision import Fact, decide
from tonnage.comparison.rules import Rules, load_rules, packaged_rules, parse_rules
from tonnage.errors import InputError, UnknownName, WorkloadError

TREE = """
name: small
title: A small tree
about: For tests.
source: nobody
start: big
needs: {urgent: it is urgent}
questions:
  big: {ask: Is it big, fact: team_size, above: 5, yes: urgent, no: stay}
  urgent: {ask: Is it urgent, fact: urgent, is: true, yes: go, no: stay}
leaves:
  go: {say: Go, because: it is urgent}
  stay: {say: Stay, because: it is not}
"""


def facts(**values: object) -> dict[str, Fact]:
    return {name: Fact(value=value, origin=f"given: {name}") for name, value in values.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("yes: go, no: stay}", "yes: big, no: stay}", "circle: big -> urgent -> big"),
        ("yes: go, no: stay}", "yes: stay, no: stay}", "`leaves.go`: is never reached"),
        ("yes: urgent, no: stay}", "yes: go, no: stay}", "`questions.urgent`: is never reached"),
        ("yes: go, no: stay}", "yes: gone, no: stay}", "no question or leaf is named 'gone'"),
        ("start: big", "start: bog", "no question is named 'bog'"),
        ("fact: team_size", "fact: team_sise", "no fact is named 'team_sise'"),
        ("above: 5", "above: 5, below: 9", "one of is, above"),
        ("above: 5,", "", "one of is, above"),
        ("above: 5", "above: usd_per_mnth.databricks", "no fact is named"),
        ("name: small", "nmae: small", "unknown key"),
        ("  stay: {", "  stay: {name: go, ", "`leaves.stay.name`: unknown key 'name'"),
        ("  big: {", "  big: {name: small, ", "tree.yaml:9: `questions.big.name`: unknown key 'name'"),
        ("needs: {urgent: it is urgent}", "needs: {urgent: it is urgent, cheap: it is cheap}", "asked by no question"),
    ],
)
def test_faults_are_reported(before: str, after: str, said: str) -> None:
    """Cycles, dead ends, unknown names: an error with file, line and hint."""
    assert before in TREE
    with pytest.raises(WorkloadError) as caught:
        parse_rules(TREE.replace(before, after), file="tree.yaml")
    assert said in str(caught.value)
    assert "tree.yaml:" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("tuning", "requests", "complex_data", "leaf"),
    [
        (True, 0.0, False, "databricks-custom"),
        (False, 100_001.0, False, "databricks-volume"),
        (False, 100_000.0, True, "databricks-data"),
        (False, 100_000.0, False, "bedrock"),
    ],
)
def test_the_hand_written_tree(tuning: bool, requests: float, complex_data: bool, leaf: str) -> None:
    """Every leaf of the hand-written tree, at its own limits."""
    given = facts(custom_fine_tuning=tuning, requests_per_month=requests, complex_preprocessing=complex_data)
    decision = decide(packaged_rules()["seed-databricks-bedrock"], given)
    assert decision.leaf is not None
    assert decision.leaf.name == leaf


COMPUTED = {
    "can_do.any": (True, False, None),
    "meets_compliance.any": (True, False, None),
    "can_do.count": (1.0, 3.0),
    "usd_per_month.second": (100.0, 200.0, None),
    "usd_per_month.managed": (120.0, 250.0, None),
    "usd_per_month.cheapest": (100.0,),
    "can_do.cheapest_managed": (True, False),
    "can_do.cheapest_token_api": (False, True),
    "must_not_leave_account": (False, True, None),
    "ops_expertise": ("strong", "some", None),
    "team_size": (4.0, 9.0, None),
}


def test_every_leaf_of_the_computed_tree() -> None:
    """Each leaf is reached by some facts, and none of these combinations is left undecided."""
    rules = packaged_rules()["computed-cost"]
    reached = set()
    for values in product(*COMPUTED.values()):
        given = {name: Fact(value=value, origin="x") for name, value in zip(COMPUTED, values, strict=True)}
        leaf = decide(rules, given).leaf
        assert leaf is not None
        reached.add(leaf.name)
    assert reached == set(rules.leaves)


@pytest.mark.parametrize(
    ("team", "skills", "leaf"),
    [(5.0, "strong", "managed-where-close"), (6.0, "none", "managed-where-close"), (6.0, "some", "by-cost"),
     (None, None, "by-cost")],
)  # fmt: skip
def test_who_runs_it_is_a_preference(team: float | None, skills: str | None, leaf: str) -> None:
    """A small or unskilled team prefers a managed one among equals; that never excludes another."""
    given = {name: Fact(value=values[0], origin="x") for name, values in COMPUTED.items()}
    own = {"can_do.count": 2.0, "team_size": team, "ops_expertise": skills, "must_not_leave_account": None}
    given |= {name: Fact(value=value, origin="x") for name, value in own.items()}
    found = decide(packaged_rules()["computed-cost"], given).leaf
    assert found is not None
    assert found.name == leaf
    assert not found.must


def test_a_number_is_asked_for() -> None:
    """A rule that compares words as numbers is bad input, not a crash."""
    rules = parse_rules(TREE.replace("fact: team_size, above: 5", "fact: ml_expertise, above: 5"))
    with pytest.raises(InputError, match="ml_expertise as a number"):
        decide(rules, facts(ml_expertise="some", urgent=True))


@pytest.fixture
def small() -> Rules:
    return parse_rules(TREE)


def test_the_trace(small: Rules) -> None:
    """Every question asked, its answer, what was found and where it stands."""
    decision = decide(small, facts(team_size=6, urgent=False))
    assert [(step.question.name, step.answer) for step in decision.steps] == [("big", "yes"), ("urgent", "no")]
    assert decision.steps[0].found == "team_size = 6"
    assert decision.steps[0].origin == "given: team_size"


def test_what_would_change_it(small: Rules) -> None:
    """Only answers that lead to another leaf, with the value that turns them."""
    decision = decide(small, facts(team_size=6, urgent=True))
    said = {flip.question: (flip.change, flip.leaf.name if flip.leaf else None) for flip in decision.flips}
    assert said == {"big": ("team_size is at most 5 (now 6)", "stay"), "urgent": ("urgent is no (now yes)", "stay")}
    quiet = decide(small, facts(team_size=6, urgent=False))
    assert [flip.question for flip in quiet.flips] == ["urgent"]


def test_flips_hold(small: Rules) -> None:
    """Making the change that a flip names leads to the leaf it names."""
    tried = 0
    for size, urgent in product((3, 6), (True, False)):
        before = {"team_size": size, "urgent": urgent}
        for flip in decide(small, facts(**before)).flips:
            after = before | ({"team_size": 5 if size > 5 else 6} if flip.question == "big" else {"urgent": not urgent})
            assert decide(small, facts(**after)).leaf == flip.leaf
            tried += 1
    assert tried == 4


def test_what_is_not_known_is_said(small: Rules) -> None:
    """Without the fact nothing is decided, and both ways are shown."""
    decision = decide(small, facts(team_size=None, urgent=True))
    assert decision.leaf is None
    assert decision.missing == "team_size"
    assert {flip.leaf.name for flip in decision.flips if flip.leaf} == {"go", "stay"}


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """A path ending in .yaml is a rule set; an unknown name has the nearest."""
    (tmp_path / "mine.yaml").write_text(TREE)
    assert load_rules("mine.yaml", tmp_path).name == "small"
    with pytest.raises(UnknownName) as caught:
        load_rules("computed-costs", tmp_path)
    assert "'computed-cost'" in (caught.value.hint or "")
