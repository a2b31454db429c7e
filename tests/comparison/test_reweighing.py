"""Other weights for a comparison that was made: as if the file had them, without planning anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tonnage.comparison import comparing
from tonnage.comparison.comparing import Comparison, reweighted
from tonnage.errors import InputError
from tonnage.reports.comparison.document import comparison_document


def test_other_weights_are_as_if_the_file_had_them(
    compared: Callable[..., Comparison], standard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a report shows is equal; no total is computed again."""
    weights = {"cost": 0.0, "scaling": 9.0, "collaboration": 4.0}
    asked = "\nweights: {" + ", ".join(f"{key}: {value}" for key, value in weights.items()) + "}\n"
    bare = "\n".join(line for line in standard.splitlines() if not line.startswith("weights:"))
    wanted, made = compared(bare + asked), compared(bare)
    monkeypatch.setattr(comparing, "compute_total", lambda *_, **__: pytest.fail("it was computed anew"))
    found = reweighted(made, weights)
    assert comparison_document(found) == comparison_document(wanted)
    assert found.ranking != made.ranking
    assert found == replace(wanted, request=found.request)
    assert found.request.weights_given == wanted.request.weights_given


@pytest.mark.parametrize(
    ("weights", "said"),
    [({"costs": 1.0}, "no criterion is named 'costs'"), ({"cost": -1.0}, "at least 0"), ({"cost": float("nan")}, "nan"),
     ({"cost": float("inf")}, "inf"), ({"purpose": 1.0}, "not scored")],
)  # fmt: skip
def test_weights_that_are_none(compared: Callable[..., Comparison], weights: dict[str, float], said: str) -> None:
    """InputError with the criterion, and what to do."""
    with pytest.raises(InputError, match=said) as caught:
        reweighted(compared(), weights)
    assert caught.value.hint


def test_no_weight_at_all(compared: Callable[..., Comparison]) -> None:
    """What leaves no criterion is refused."""
    made = compared()
    with pytest.raises(InputError, match="no weight is above 0"):
        reweighted(made, dict.fromkeys((one.key for one in made.criteria if one.scored), 0.0))
