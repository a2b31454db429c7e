"""Every reason that planning gives has words, a kind of its own and a JSON that holds all of it."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import date
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.planning.reasons import (
    Reason,
    changes,
    distances,
    machine_misses,
    notes,
    origins,
    risks,
    term_misses,
    without_figures,
)
from tonnage.planning.reasons.changes import AnyChange
from tonnage.planning.reasons.distances import Distance
from tonnage.planning.reasons.miss import AnyMiss
from tonnage.planning.reasons.misses import MachineMiss, Miss, TermMiss, UnpricedMiss
from tonnage.planning.reasons.notes import Note
from tonnage.planning.reasons.origins import Origin
from tonnage.planning.reasons.risks import LatencyRisk, OddPriceRisk, Risk
from tonnage.pricing.price_dates import PricesApart
from tonnage.reports.reasons import (
    change_document,
    change_words,
    miss_document,
    miss_words,
    risk_document,
    risk_words,
)
from tonnage.reports.reasons.distances import distance_document, distance_words
from tonnage.reports.reasons.notes import note_words, notes_document
from tonnage.reports.reasons.origins import origin_document, origin_words
from tonnage.reports.reasons.reference import render_reference
from tonnage.reports.reasons.spot_refusals import spot_refusal_document, spot_refusal_words
from tonnage.reports.rightsizing import broken_document, broken_words, remark_document, remark_words
from tonnage.rightsizing import remarks
from tonnage.rightsizing.holding import Broken
from tonnage.rightsizing.remarks import Difference, Doubt
from tonnage.spot_instances import refusals
from tonnage.spot_instances.refusals import SpotRefusal

SORTS = [
    *((kind, risk_words, risk_document) for kind in get_args(Risk)),
    *((kind, note_words, lambda note: notes_document([note])["note_values"][0]) for kind in get_args(Note)),
    *((kind, remark_words, remark_document) for kind in get_args(Difference | Doubt)),
    *((kind, spot_refusal_words, spot_refusal_document) for kind in get_args(SpotRefusal)),
    *((kind, origin_words, origin_document) for kind in get_args(Origin)),
    *((kind, distance_words, distance_document) for kind in get_args(Distance)),
    *((kind, change_words, change_document) for kind in get_args(AnyChange)),
    *((kind, lambda miss: miss_words(miss).clause, miss_document) for kind in get_args(Miss)),
    *(
        (kind, lambda broken: broken_words(broken).clause, lambda broken: broken_document(broken)["reason"])
        for kind in get_args(Broken)
    ),
]
MODULES = [
    (risks, Reason, get_args(Risk)),
    (notes, Reason, get_args(Note)),
    (origins, Reason, get_args(Origin)),
    (distances, Reason, get_args(Distance)),
    (remarks, Reason, get_args(Difference | Doubt)),
    (refusals, Reason, get_args(SpotRefusal)),
    (changes, Reason, get_args(AnyChange)),
    (term_misses, AnyMiss, get_args(TermMiss)),
    (machine_misses, AnyMiss, get_args(MachineMiss)),
]
NAMES = st.text(alphabet="abcXYZ-_.:19", min_size=1, max_size=12)


@cache
def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type; figures that six significant digits hold."""
    origin = get_origin(kind)
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin in (Union, UnionType):
        return st.one_of([values_of(one) for one in get_args(kind)])
    if origin is tuple:
        return st.lists(values_of(get_args(kind)[0]), min_size=1, max_size=3).map(tuple)
    plain = {
        str: NAMES,
        bool: st.booleans(),
        int: st.integers(0, 99_999),
        float: st.integers(1, 9_999_999).map(lambda number: number / 100 if number < 100_000 else float(number)),
        NoneType: st.none(),
        date: st.dates(),
    }
    return plain[kind] if kind in plain else built(kind)


@cache
def built(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})


def read(kind: Any, plain: Any) -> Any:
    """The value that a JSON document holds."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        kinds = [one for one in get_args(kind) if (one is NoneType) == (plain is None)]
        if isinstance(plain, dict) and len(kinds) > 1:
            kinds = [one for one in kinds if one.kind == plain["kind"]]
        return read(type(plain) if type(plain) in kinds else kinds[0], plain)
    if origin is tuple:
        return tuple(read(get_args(kind)[0], one) for one in plain)
    if origin is Literal or kind in (str, bool, int, NoneType):
        return plain
    if kind is date:
        return date.fromisoformat(plain)
    if kind is float:
        return float(plain)
    hints = get_type_hints(kind)
    return kind(**{field.name: read(hints[field.name], plain[field.name]) for field in fields(kind)})


@pytest.mark.parametrize(("kind", "words", "document"), SORTS, ids=lambda one: getattr(one, "__name__", None))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_reason_has_words_and_survives_json(kind: type[Reason], words: Any, document: Any, data: Any) -> None:
    """Whatever its figures, a reason reads as a clause, and its JSON holds the very value."""
    reason = data.draw(built(kind))
    text = words(reason)
    assert text.strip() == text
    assert text
    assert not any(trace in text for trace in (kind.__name__, "None", "nan", "()"))
    plain = json.loads(json.dumps(document(reason), allow_nan=False))
    assert (plain["kind"], plain["text"]) == (kind.kind, text)
    assert read(kind, plain) == reason


@pytest.mark.parametrize(("module", "base", "kinds"), MODULES, ids=lambda one: getattr(one, "__name__", None))
def test_kinds_are_a_closed_set(module: ModuleType, base: type[Reason], kinds: tuple[type[Reason], ...]) -> None:
    """Every reason that a module declares is in the set that words are made for."""
    made = {one for one in vars(module).values() if isinstance(one, type) and issubclass(one, base)}
    assert made - {Reason, AnyMiss} == set(kinds)


@pytest.mark.parametrize(
    "union", [Risk, Origin, Note, Distance, Difference | Doubt, SpotRefusal, AnyChange, Miss, Broken]
)
def test_kinds_are_distinguished(union: Any) -> None:
    """No two kinds of one sort share their name."""
    names = [kind.kind for kind in get_args(union)]
    assert len(set(names)) == len(names)


@given(data=st.data())
def test_reasons_that_differ_in_figures_alone_are_of_a_kind(data: Any) -> None:
    """A table may give them one letter: names count, figures do not, at any depth."""
    first, second = data.draw(built(LatencyRisk)), data.draw(built(LatencyRisk))
    assert (without_figures(first) == without_figures(second)) == (first.promise == second.promise)
    odd = data.draw(built(OddPriceRisk))
    other = data.draw(built(OddPriceRisk))
    like, theirs = odd.doubt.expectation, other.doubt.expectation
    same = (like.like, like.provider, like.device) == (theirs.like, theirs.provider, theirs.device)
    assert (without_figures(odd) == without_figures(other)) == same


def test_the_page_of_reasons_is_fresh() -> None:
    """docs/reasons.md is what the kinds make it: `python -m tonnage.reports.reasons.reference > docs/reasons.md`."""
    page = Path(__file__).parents[2] / "docs" / "reasons.md"
    assert page.read_text() == render_reference()


@pytest.mark.parametrize(
    ("cut_on", "said"),
    [(date(2025, 6, 5), "the price cut of 2025-06-05 may lie between"), (None, "too far apart to compare")],
)
def test_a_price_across_a_cut_is_reported(cut_on: date | None, said: str) -> None:
    """A price that is held and says nothing beside the machine's is told with both days, never as none."""
    apart = PricesApart(first_on=date(2025, 1, 26), second_on=None, cut_on=cut_on)
    words = miss_words(UnpricedMiss(of="ml instance", name="p5.48xlarge", apart=apart))
    assert words.needs == "the price of ml.p5.48xlarge"
    assert "2025-01-26 beside the machine's of an unknown day" in words.has
    assert said in words.has
