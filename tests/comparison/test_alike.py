"""Speed on equal machines and for the same money; scores of the machines that an entry names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.comparison.shipped import compared_example

from tonnage.catalog import load_catalog
from tonnage.comparison.alike import bought_as
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.narrowed import of_its_machines
from tonnage.comparison.request import CompareRequest
from tonnage.reports.blocks import Pairs, Table
from tonnage.reports.comparison.alike_words import alike_parts
from tonnage.reports.comparison.choice import summary_section


def machines() -> Comparison:
    return compared_example("gcp-h100-vs-databricks")


def test_an_h100_is_set_against_as_many_a100() -> None:
    """On as many of each, whatever number is the cheapest way, the H100 is the faster, and scores so."""
    found = machines()
    cheapest = {name: found.totals[name].rows[0].option for name in ("gcp-h100", "databricks-a100")}
    (one,) = found.alike
    times = {}
    for name in cheapest:
        option = one.on_devices[name]
        assert option is not None
        assert option.time_s is not None
        assert option.gpu_count * option.count == one.devices
        times[name] = option.time_s.value
    assert times["gcp-h100"] < times["databricks-a100"]
    scores = {name: found.scores[name]["device_speed"].value for name in cheapest}
    assert scores["gcp-h100"] > scores["databricks-a100"]


def test_the_same_money_for_each() -> None:
    """What is compared costs no more than the dearest of the cheapest ways, and is the fastest for it."""
    (one,) = machines().alike
    rows = {name: total.rows[0] for name, total in machines().totals.items()}
    costs = [row.option.cost_usd.value for row in rows.values() if row.option is not None]
    assert one.budget_usd == max(costs)
    for name, option in one.within_budget.items():
        assert option is not None
        assert option.cost_usd.value <= one.budget_usd * (1 + 1e-9)
        assert option.time_s is not None
        for other in rows[name].front:
            assert other.time_s is not None
            assert other.cost_usd.value > one.budget_usd or other.time_s.value >= option.time_s.value


def test_spot_stands_beside_spot() -> None:
    """Each way of buying has its column, with the cheapest way under it."""
    table = [part for part in alike_parts(machines()) if isinstance(part, Table)][-1]
    assert [column.title for column in table.columns][2:] == ["On demand", "Spot"]
    row = machines().totals["gcp-h100"].rows[0]
    spot, demand = bought_as(row, "spot"), bought_as(row, "on_demand")
    assert spot is not None
    assert demand is not None
    assert (spot.purchase, demand.purchase) == ("spot", "on_demand")
    assert spot.cost_usd.value < demand.cost_usd.value


@pytest.mark.parametrize("narrowed", ["gpus: [T4]", "machines: ['c7g*', 'm7g*', 'r7g*']"])
def test_a_narrowed_entry_has_the_network_of_its_machines(
    ask: Callable[..., CompareRequest], standard: str, narrowed: str
) -> None:
    """T4 machines and Graviton do not have «the fastest links with full control» that the cloud's best have."""
    catalog = load_catalog()
    whole = ask(standard).alternatives[0]
    text = standard.replace("- self-managed-aws", f"- {{name: self-managed-aws, {narrowed}}}")
    alternative = of_its_machines(ask(text).alternatives[0], catalog)
    assert whole.profile.cells["network"].score == 5
    assert alternative.profile.cells["network"].score in (2, 3)
    assert alternative.profile.cells["hardware"].score == 2
    assert of_its_machines(whole, catalog) == whole


def test_a_narrowed_entry_keeps_what_is_fast(ask: Callable[..., CompareRequest], standard: str) -> None:
    """H100 machines of AWS have its fastest network."""
    text = standard.replace("- self-managed-aws", "- {name: self-managed-aws, gpus: [H100]}")
    alternative = of_its_machines(ask(text).alternatives[0], load_catalog())
    assert alternative.profile.cells["network"].score == 5


def test_what_is_bought_on_spot_says_so() -> None:
    """The summary names the work that a figure has on spot, so that it is not read beside an on-demand one."""
    found = machines()
    on_spot = {row.alternative for total in found.totals.values() for row in total.rows
               if row.option is not None and row.option.purchase == "spot"}  # fmt: skip
    (pairs,) = [part for part in summary_section(found).parts if isinstance(part, Pairs)]
    assert found.able
    for name in found.able:
        said = dict(pairs.rows)[found.title_of[name]]
        assert ("on spot" in said) == (name in on_spot)
