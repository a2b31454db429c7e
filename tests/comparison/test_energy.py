"""Energy and carbon: by hand from the catalog's power limit, and not known where a factor is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from tonnage.catalog import Catalog
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.energy import MissingFootprint, Stated, footprint, load_carbon, total
from tonnage.errors import WorkloadError
from tonnage.planning import Option, TokenOption
from tonnage.planning.plan import BaseOption
from tonnage.reports.reasons.comparison import missing_words
from tonnage.sizing.estimates import Figure

HOURS = Figure(value=10.0, low=8.0, high=15.0)


@pytest.fixture
def option(compared: Callable[..., Comparison]) -> Option:
    """One g4dn.xlarge with one T4 (70 W) in us-east-1."""
    found = compared().totals["self-managed-aws"].rows[0].option
    assert found is not None
    return found


def test_by_hand(option: Option, catalog: Catalog) -> None:
    """70 W x 0.8 x 10 h x 1.135 = 0.6356 kWh; at 379.069 g that is 0.2409 kg; ends: 0.5 x 8 h and 1.0 x 15 h."""
    found = footprint(option, HOURS, catalog, Stated())
    assert found.energy_kwh is not None
    assert found.carbon_kg is not None
    assert found.energy_kwh.value == pytest.approx(0.070 * 0.8 * 10 * 1.135)
    assert found.energy_kwh.low == pytest.approx(0.070 * 0.5 * 8 * 1.135)
    assert found.energy_kwh.high == pytest.approx(0.070 * 1.0 * 15 * 1.135)
    assert found.energy_kwh.basis == "assumed"
    assert found.carbon_kg.value == pytest.approx(0.6356 * 0.379069)
    assert found.missing == ()
    assert all(factor.evidence for name, factor in found.factors if name not in ("power limit", "drawn"))


def test_what_is_stated_comes_first(option: Option, catalog: Catalog) -> None:
    """The user's grid, PUE and fraction replace those on record."""
    found = footprint(option, HOURS, catalog, Stated(grid_g_per_kwh=20.0, pue=1.5, power_fraction=1.0))
    assert found.energy_kwh is not None
    assert found.carbon_kg is not None
    assert found.energy_kwh.value == pytest.approx(0.070 * 10 * 1.5)
    assert found.energy_kwh.basis == HOURS.basis
    assert found.carbon_kg.value == pytest.approx(0.070 * 10 * 1.5 * 0.020)


@pytest.mark.parametrize(("load", "value", "low", "high"), [(0.0, 0.2, 0.1, 0.4), (0.01, 0.206, 0.104, 0.406),
                                                          (0.5, 0.5, 0.3, 0.7), (1.0, 0.8, 0.5, 1.0)])  # fmt: skip
def test_power_goes_with_the_load(
    option: Option, catalog: Catalog, load: float, value: float, low: float, high: float
) -> None:
    """Idle power and a share of the rest: a service loaded 1 % draws about a fourth of what a busy one does."""
    found = footprint(option, HOURS, catalog, Stated(), load=load).energy_kwh
    assert found is not None
    assert found.value == pytest.approx(0.070 * value * 10 * 1.135)
    assert found.low == pytest.approx(0.070 * low * 8 * 1.135)
    assert found.high == pytest.approx(0.070 * high * 15 * 1.135)


def test_a_load_nobody_knows_leaves_the_energy_unknown(option: Option, catalog: Catalog) -> None:
    """Unless the user states what the devices draw."""
    assert footprint(option, HOURS, catalog, Stated(), load=None).missing == (MissingFootprint(of="load"),)
    assert footprint(option, HOURS, catalog, Stated(power_fraction=0.5), load=None).energy_kwh is not None


@pytest.mark.parametrize(
    ("changes", "energy", "said"),
    [
        ({"region": "mars-north-1"}, True, "grid intensity of aws mars-north-1"),
        ({"provider": "lambda"}, False, "PUE of lambda"),
        ({"gpu": None}, False, "without an accelerator"),
    ],
)
def test_a_missing_factor_is_named(
    option: Option, catalog: Catalog, changes: dict[str, object], energy: bool, said: str
) -> None:
    """Energy alone where only the grid is missing; else nothing, and for want of what."""
    found = footprint(replace(option, **changes), HOURS, catalog, Stated())  # type: ignore[arg-type]
    assert (found.energy_kwh is not None) == energy
    assert found.carbon_kg is None
    assert said in missing_words(found.missing)


def test_a_token_api_is_not_known(option: Option, catalog: Catalog) -> None:
    """No vendor of tokens publishes their power."""
    shared = {field.name: getattr(option, field.name) for field in fields(BaseOption)}
    tokens = TokenOption(**shared, training=False, input_tokens=9, output_tokens=1, latency_p95_s=None, ttft_p95_s=None)
    assert footprint(tokens, HOURS, catalog, Stated()).missing == (MissingFootprint(of="token power"),)


def test_a_month_of_jobs_and_of_a_service(compared: Callable[..., Comparison], standard: str) -> None:
    """30 jobs of 0.1 h; a service stands 730 h; both together are their sum."""
    jobs = compared().totals["self-managed-aws"].energy_kwh_per_month
    assert jobs is not None
    assert jobs.value == pytest.approx(0.070 * 0.8 * 30 * 0.1 * 1.135)
    works = "workloads: [{file: tune.yaml, jobs_per_month: 30}]"
    both = compared(standard.replace(works, "workloads: [{file: tune.yaml, jobs_per_month: 30}, {file: answer.yaml}]"))
    together = both.totals["self-managed-aws"].energy_kwh_per_month
    assert together is not None
    half_loaded = 0.2 + 0.5 * (0.8 - 0.2)
    assert together.value == pytest.approx(jobs.value + 0.070 * half_loaded * 730 * 1.135)
    assert both.totals["databricks"].energy_kwh_per_month is None


def test_figures_on_record() -> None:
    """Every grid is a plausible number with its source; PUE at least 1."""
    carbon = load_carbon()
    assert {"aws", "gcp", "azure"} <= set(carbon.providers)
    for one in carbon.providers.values():
        assert 1.0 <= one.pue <= 1.5
        assert all(0 <= grid <= 1000 for grid in one.grid_g_per_kwh.values())
        assert {one.pue_source, one.grid_source} <= set(carbon.sources)


@pytest.mark.parametrize("text", ["carbon: {pue: 0.9}", "carbon: {grid_g_per_kwh: -1}", "carbon: {power_fraction: 2}"])
def test_impossible_figures_are_refused(ask: Callable[..., object], standard: str, text: str) -> None:
    """A PUE below 1, a negative grid and more than the power limit are bad input."""
    with pytest.raises(WorkloadError, match="carbon"):
        ask(standard + text + "\n")


def test_factors_of_each_work_are_kept(option: Option, catalog: Catalog) -> None:
    """Work on one device and on two: both power limits are told, each with its unit; the shared PUE once."""
    one, two = (footprint(replace(option, count=count), HOURS, catalog, Stated()) for count in (1, 2))
    factors = total({"a": one, "b": two}).factors
    assert [(name, factor.value, factor.unit) for name, factor in factors if name == "power limit"] == [
        ("power limit", 70.0, "W"),
        ("power limit", 140.0, "W"),
    ]
    assert [name for name, _ in factors].count("PUE") == 1
