"""Words for why work is spread or not, and for what a footprint lacks."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from tonnage.comparison.energy import MissingFootprint
from tonnage.comparison.splitting import Placement, Split, SplitGround
from tonnage.reports.reasons.comparison import LACKS, missing_words, split_words
from tonnage.sizing.estimates import Figure


def usd(value: float) -> Figure:
    return Figure(value=value, low=value, high=value)


def split(ground: SplitGround, whole: float = 900.0, rules: str = "") -> Split:
    return Split(
        places=(), usd_per_month=usd(whole / 12), usd=usd(whole), single="one", single_usd_per_month=usd(1000.0 / 12),
        single_usd=usd(1000.0), weeks=52.0, ground=ground, rules=rules, least="one", least_usd=usd(1000.0),
        cheapest=Placement(places=(), usd_per_month=usd(whole / 12), usd=usd(whole)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (split("no place"), "some work can be done by none of them"),
        (split("no place", rules="SOC 2"), "some work can be done by none of them that is known to meet SOC 2"),
        (split("one place"), "there is one place for all the work: no split"),
        (
            split("saves nothing"),
            "no split costs less over 52 weeks than all the work in one place, moving and people included",
        ),
        (split("needed"), "no single one may do all the work: it must be split"),
        (split("saves"), "saves $100.00 over 52 weeks, moving and people included"),
        (
            split("saves too little"),
            "the cheapest split saves $100.00 over 52 weeks, moving and people included: too little for a second "
            "platform",
        ),
    ],
)
def test_a_split_is_worth_it_where_it_saves_or_must_be(found: Split, said: str) -> None:
    """Each ground has its clause."""
    assert split_words(found, {}) == said
    assert found.worth_it == (found.ground in ("saves", "needed"))


def test_all_that_a_footprint_may_lack_has_words() -> None:
    """Every kind of `MissingFootprint`; what several works lack stands once each."""
    assert set(LACKS) == set(get_args(get_type_hints(MissingFootprint)["of"]))
    lacks = (MissingFootprint(of="PUE", name="runpod"), MissingFootprint(of="power limit", name="X1"))
    assert missing_words(lacks) == "PUE of runpod: state carbon.pue; power limit of X1: the catalog has none"
    assert missing_words(()) == ""
