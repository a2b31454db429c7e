"""The one table of parameters: each figure inside its range, with a source, and fitted where it says so."""

from __future__ import annotations

import pytest

from tonnage.calibration.inference_classes import FITTED
from tonnage.calibration.inference_pooling import PASS_CLASSES, SPREADS
from tonnage.calibration.store import load_calibration
from tonnage.sizing.assumption_table import Assumption, listed
from tonnage.sizing.assumptions import Assumptions, fitted_parameters, unfitted
from tonnage.sizing.engines import FIGURES, PRIORS
from tonnage.sizing.tabular_assumptions import TabularAssumptions

TABLE = listed(Assumptions())


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_figure_has_range_source_and_start(one: Assumption) -> None:
    """A figure lies in its range and names a source; one that a fit sets says so, and has a judgement to begin from."""
    assert one.low <= one.value <= one.high
    assert len(one.source) > 20
    assert (one.fitted_by != "") == (one.start is not None)
    assert (one.fitted_by != "") == ("fitted to" in one.source)
    if one.start is not None:
        assert one.low <= one.start <= one.high


@pytest.mark.parametrize("one", [*FIGURES.values(), *listed(TabularAssumptions())], ids=lambda one: one.name)
def test_figures_of_engines_and_tables_are_declared_alike(one: Assumption) -> None:
    """A range and a source stand with the field; a unit is in its name, or it is a share, a factor or a power."""
    assert one.low <= one.high
    assert len(one.source) > 20
    dimensionless = ("fraction", "factor", "exponent", "gain", "left")
    assert one.unit != "1" or one.name.endswith(dimensionless)


def test_fits_begin_at_judgements() -> None:
    """A training fit searches from what was judged before any fit, inside the range."""
    for one in (*fitted_parameters("training time"), *fitted_parameters("training memory")):
        assert getattr(unfitted(), one.name) == one.start


def test_engine_classes_begin_inside_their_ranges() -> None:
    """A class's structure says each figure inside the range that a fit may use, or 0: it has none of it. What is fitted
    to some class is declared so."""
    for engine in PRIORS.values():
        for one in listed(engine):
            assert one.low <= one.value <= one.high or one.value == 0.0, (engine.name, one.name)
    assert {*SPREADS, *(name for names in FITTED.values() for name in names)} == set(FIGURES)
    assert {*PASS_CLASSES, *FITTED} == set(PRIORS)
    assert {one.fitted_by for one in FIGURES.values()} == {"inference"}


def test_what_is_called_fitted_is_what_the_packaged_fit_moved() -> None:
    """No judgement poses as a fit, and each parameter has one range: that of the table is that of the fit, under one
    name."""
    packaged = load_calibration()
    assert packaged is not None
    fitted = packaged.training
    assert fitted is not None
    declared = {one.name: (one.low, one.high) for one in TABLE if one.fitted_by}
    assert len({one.name for one in TABLE}) == len(TABLE)
    assert set(fitted.values) == set(declared)
    assert {name: tuple(ends) for name, ends in fitted.ranges.items()} == declared
    judged = {one.name for one in TABLE if not one.fitted_by}
    assert {"sustained_cap_fraction", "runtime_context_gib"} <= judged
    assert {name: getattr(Assumptions(), name) for name in judged} == {
        name: getattr(fitted.assumptions(), name) for name in judged
    }
