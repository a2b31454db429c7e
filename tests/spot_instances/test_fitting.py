"""Lifetimes fitted: known laws are found again, files come back, and the published summary of real traces agrees."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.spot_instances import (
    HazardModel,
    SpotTrace,
    fit_hazards,
    fit_traces,
    model_text,
    packaged_model,
    parse_model,
    parse_trace,
)
from tonnage.spot_instances.fitting import fit_weibull, hazard_by_age, observed_runs, run_statistics
from tonnage.spot_instances.hazards import AGES_H, bucket_of, exposure_by_age

from .conftest import document, renewal_data, trace


@pytest.mark.parametrize("shape", [0.6, 0.9, 1.4])
def test_a_weibull_law_is_found_again(shape: float) -> None:
    """4,000 lives, those over 6 h cut there: shape and scale within 6 %."""
    lives = 2.0 * np.random.default_rng(0).weibull(shape, 4000)
    fitted = fit_weibull(np.minimum(lives, 6.0), lives < 6.0)
    assert fitted is not None
    assert fitted.shape == pytest.approx(shape, rel=0.06)
    assert fitted.scale_h == pytest.approx(2.0, rel=0.06)


def test_no_weibull_without_events() -> None:
    assert fit_weibull(np.array([1.0, 2.0]), np.array([False, True])) is None
    assert fit_weibull(np.array([2.0, 2.0]), np.array([True, True])) is None


def test_runs_at_the_edges() -> None:
    """The first run has no start and is dropped, the last has no end and is censored."""
    lengths, ended = observed_runs([trace([1, 1, 0, 1, 1, 1, 0, 0, 1])], up=True)
    assert (lengths * 30).round().tolist() == [3, 1]
    assert ended.tolist() == [True, False]


def test_exposure_and_buckets() -> None:
    """A run of 1.5 h spends a quarter of an hour in each of the first two buckets and ends in that from 1 h on."""
    assert exposure_by_age(1.5).tolist() == [0.25, 0.25, 0.5, 0.5, 0, 0, 0, 0]
    assert bucket_of(1.5) == AGES_H.index(1.0)
    assert bucket_of(0.25) == 0  # it ended at the end of the first
    assert hazard_by_age(np.array([0.1, 1.5]), np.array([True, True]))[0] == pytest.approx(1 / 0.35)


def test_constant_hazards_are_found_again() -> None:
    """Exponential lives of 2 h and absences of 0.5 h: hazards of 0.5 and 2 an hour, whatever the age."""
    model = fit_hazards([trace(renewal_data(s, 60_000, up_h=2.0, down_h=0.5, shape=1.0)) for s in (1, 2)], source="t")
    up = np.array(model.up.per_h[:5]) * np.exp(model.up.log_mean)
    assert up == pytest.approx(np.full(5, 0.5), rel=0.15)
    assert np.exp(model.down.log_mean) * model.down.per_h[1] == pytest.approx(2.0, rel=0.15)


def test_falling_hazards_are_found_again() -> None:
    model = fit_hazards([trace(renewal_data(3, 60_000))], source="t")
    assert model.up.per_h[0] > 1.5 * model.up.per_h[2] > 2 * model.up.per_h[5]


def test_zones_that_differ_spread_the_factor() -> None:
    """Zones with lives of 0.5 and 8 h: a wider spread than zones alike."""
    alike = fit_hazards([trace(renewal_data(s, 20_000)) for s in range(4)], source="t")
    mixed = fit_hazards([trace(renewal_data(s, 20_000, up_h=h)) for s, h in enumerate((0.5, 0.5, 8, 8))], source="t")
    assert mixed.up.log_spread > 2 * alike.up.log_spread


def test_a_record_without_changes_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="neither went nor came back"):
        fit_hazards([trace([1] * 100)], source="t")


def test_a_zone_that_never_goes_has_a_factor_too() -> None:
    """One steady zone among others gives finite figures and a low factor."""
    model = fit_hazards([trace(renewal_data(1, 20_000)), trace([0] * 9 + [1] * 20_000)], source="t")
    assert np.isfinite(model.up.log_mean)
    assert model.up.log_spread > 1.0


def test_a_model_file_comes_back(model: HazardModel) -> None:
    """What is written is read again, to the digits written; the same model gives the same bytes."""
    text = model_text(model)
    assert parse_model(text, name="m") == model
    assert model_text(parse_model(text, name="m")) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a hazard model"),
        ('{"schema": "tonnage/plan@1"}', "is not a hazard model"),
        ('{"schema": "tonnage/spot-hazards@1", "ages_h": [0]}', "has other age buckets"),
        (json.dumps({"schema": "tonnage/spot-hazards@1", "ages_h": list(AGES_H)}), "cannot be read"),
        (
            json.dumps(
                {"schema": "tonnage/spot-hazards@1", "ages_h": list(AGES_H), "up": {"per_h": [-1.0] * 8, "log_mean": 0,
                 "log_spread": 1}, "down": {}, "zones": 1, "runs": 1, "source": ""}
            ),
            "positive figures",
        ),
    ],
)  # fmt: skip
def test_a_broken_model_file_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_model(text, name="m.json")
    assert "m.json" in caught.value.message


def test_the_packaged_model() -> None:
    """Its hazards fall with age, it says where it comes from, and reading it takes no other file."""
    model = packaged_model()
    assert model.up.per_h[0] > 3 * model.up.per_h[5]
    assert model.runs > 1000
    assert "spot-traces" in model.source


def test_families_are_left_out_in_turn() -> None:
    """Where lives are Weibull, the laws that know of age predict a left-out family better than the exponential."""
    traces = [
        trace(renewal_data(seed, 20_000), name=f"t{seed}", family=family)
        for seed, family in ((1, "a"), (2, "a"), (3, "b"))
    ]
    found = fit_traces(traces, source="t")
    assert [line.family for line in found.left_out] == ["a", "b"]
    for line in found.left_out:
        assert line.weibull > line.exponential + 0.05
        assert line.buckets > line.exponential + 0.05
    assert fit_traces(traces[:2], source="t").left_out == ()


def test_prices_are_summed_up() -> None:
    data = document([1, 1, 0, 1]) | {"spot_price_usd_per_h": [1.0, 1.0, None, 1.5]}
    found = run_statistics([parse_trace(json.dumps(data), name="p")], "p").prices
    assert found is not None
    assert (found.low, found.high, found.changes) == (1.0, 1.5, 1)
    assert found.mean == pytest.approx(3.5 / 3)
    assert run_statistics([trace([1, 0, 1])], "p").prices is None


FACTS = Path(os.environ.get("TONNAGE_FACTS", "no-facts"))


@pytest.mark.skipif(not (FACTS / "spot_lifetimes.csv").is_file(), reason="TONNAGE_FACTS has no spot_lifetimes.csv")
def test_statistics_agree_with_the_published_summary() -> None:
    """Availability, preemption rate and Weibull shapes of the real traces, against an independent computation."""
    checked = 0
    with (FACTS / "spot_lifetimes.csv").open() as stream:
        for row in csv.DictReader(stream):
            path = FACTS / "spot_traces" / f"{row['family']}__{row['zone']}_{row['accelerator']}.json"
            if not path.is_file():
                continue
            found = run_statistics([_read(path)], path.stem)
            assert found.availability == pytest.approx(float(row["availability"]), abs=1e-4)
            assert found.preemptions_per_up_h == pytest.approx(float(row["preempt_per_up_hour"]), rel=0.03, abs=1e-4)
            for column, fitted in (("weibull_shape_up", found.up_weibull), ("weibull_shape_down", found.down_weibull)):
                if row[column]:
                    assert fitted is not None
                    assert fitted.shape == pytest.approx(float(row[column]), abs=2e-3)
            checked += 1
    assert checked >= 10


def _read(path: Path) -> SpotTrace:
    return parse_trace(path.read_text(), name=path.stem)
