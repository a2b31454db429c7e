"""The one table of parameters: each figure inside its range, with a source, and fitted where it says so."""

from __future__ import annotations

import pytest

from tonnage.calibration.training_fit import JUDGEMENTS, MEMORY_PARAMETERS, TIME_PARAMETERS
from tonnage.sizing.assumptions import Assumption, Assumptions, fitted_parameters, listed, unfitted

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


def test_fits_search_the_table_and_nothing_else() -> None:
    """The parameters of the training fits, their ranges and beginnings are those of the table."""
    time, memory = fitted_parameters("training time"), fitted_parameters("training memory")
    assert dict(TIME_PARAMETERS) == {one.name: (one.low, one.high) for one in time}
    assert dict(MEMORY_PARAMETERS) == {one.name: (one.low, one.high) for one in memory}
    assert dict(JUDGEMENTS) == {one.name: one.start for one in (*time, *memory)}
    assert all(getattr(unfitted(), name) == value for name, value in JUDGEMENTS.items())
