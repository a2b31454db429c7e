"""Rows held out: the same each time, together by group, in equal shares by class."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import DataError
from tonnage.recipes.data.splits import held_out


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=200),
    st.floats(0.05, 0.9),
    st.integers(0, 5),
)
def test_nothing_is_lost_and_no_group_is_cut(groups: list[int], fraction: float, seed: int) -> None:
    """Every row is on one side, both sides have rows, and a group is on one side."""
    if len(set(groups)) < 2:
        return
    kept, out = held_out(groups, None, fraction=fraction, seed=seed)
    assert sorted(kept + out) == list(range(len(groups)))
    assert kept
    assert out
    assert not {groups[at] for at in kept} & {groups[at] for at in out}


def test_the_order_of_the_rows_does_not_count() -> None:
    """The groups held out are the same for shuffled rows."""
    groups = [f"g{at % 40}" for at in range(400)]
    shuffled = random.Random(0).sample(groups, k=len(groups))
    one, other = (held_out(rows, None, fraction=0.2, seed=3)[1] for rows in (groups, shuffled))
    assert {groups[at] for at in one} == {shuffled[at] for at in other}


def test_another_seed_holds_out_others() -> None:
    """The seed chooses the rows."""
    groups = list(range(100))
    assert held_out(groups, None, fraction=0.2, seed=0)[1] != held_out(groups, None, fraction=0.2, seed=1)[1]


def test_classes_keep_their_shares() -> None:
    """A rare class has its share on both sides."""
    classes = ["rare" if at % 20 == 0 else "common" for at in range(1000)]
    _, out = held_out(range(1000), classes, fraction=0.1, seed=0)
    assert len(out) == 100
    assert sum(classes[at] == "rare" for at in out) == 5


def test_one_group_cannot_be_split() -> None:
    """Told, not cut in two."""
    with pytest.raises(DataError, match="one group holds all rows"):
        held_out(["a"] * 5, None, fraction=0.2, seed=0)


def test_many_small_classes_give_their_share_together() -> None:
    """Classes too small to give a row each still hold the fraction out between them; none is lost from train."""
    classes = [at // 3 for at in range(600)] + [900]
    kept, out = held_out(range(601), classes, fraction=0.1, seed=0)
    assert 55 <= len(out) <= 65
    assert {classes[at] for at in out} <= {classes[at] for at in kept}
