"""A refresh as a whole: sources at once, judged, merged, written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from threading import Event

import pytest

from tonnage.catalog import Catalog, Offer, Source, load_catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    KINDS,
    Circumstances,
    ManagedPriceRow,
    PriceSource,
    QuarantinedRow,
    SourceResult,
    Web,
    ask_sources,
    chosen_kinds,
    dated_meta,
    judge_offers,
    load_managed_prices,
    merge_answers,
    write_snapshot,
)
from tonnage.sources.managed_prices import overlay, packaged_managed_prices, with_known_names
from tonnage.testing import FakeSource

DAY = date(2026, 11, 20)
TOKENS = ManagedPriceRow(
    platform="aws-bedrock", sku="Nova Lite input", unit="USD per 1M tokens", price_usd=Decimal("0.06"),
    region_cloud="us-east-1", conditions="on-demand", date="2026-11-20", source="list",
)  # fmt: skip


def offer_of(
    catalog: Catalog, name: str = "g4dn.xlarge", region: str = "us-east-1", purchase: str = "on_demand"
) -> Offer:
    found = catalog.offers_of(catalog.instance_type(name))
    return next(one for one in found if (one.region, one.purchase) == (region, purchase))


def at(offer: Offer, price: object, **changes: object) -> Offer:
    source = Source(text="new list", read_on=DAY)
    fresh = replace(offer, usd_per_instance_hour=Decimal(str(price)), read_on=DAY, source=source)
    return replace(fresh, **changes)  # type: ignore[arg-type]


def ask(*sources: PriceSource, timeout_s: float = 30.0) -> list[SourceResult]:
    return ask_sources(sources, timeout_s=timeout_s, stop=Event(), progress=lambda _names: None)


def test_a_hanging_source_does_not_hold_up_the_others(catalog: Catalog) -> None:
    """One source never answers, one fails, one breaks, one answers: all four are named, in the order asked."""
    gate, awaited = Event(), set[str]()
    sources = [
        FakeSource(name="hangs", gate=gate),
        FakeSource(name="fails", error=SourceError("is down")),
        FakeSource(name="breaks", error=KeyError("price")),
        FakeSource(name="answers", offers=(offer_of(catalog),)),
        FakeSource(name="is empty"),
    ]
    stop = Event()
    try:
        answers = ask_sources(sources, timeout_s=1.0, stop=stop, progress=awaited.update)
    finally:
        gate.set()
    assert [answer.report.error for answer in answers] == [
        "did not answer within 1 s", "is down", "KeyError: 'price'", None, "no row of 0 can be used (it is empty)",
    ]  # fmt: skip
    assert stop.is_set()
    assert "hangs" in awaited


def test_ctrl_c_stops_every_source() -> None:
    """An interrupt goes up to the caller, and the sources are told to stop."""
    gate, stop = Event(), Event()

    def interrupt(_names: Sequence[str]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_sources([FakeSource(name="hangs", gate=gate)], timeout_s=30, stop=stop, progress=interrupt)
    assert stop.is_set()
    gate.set()


JUDGED = [  # purchase, factor on the price of before, reason
    ("on_demand", "1.5", None),
    ("on_demand", "3.9", None),
    ("on_demand", "0.26", None),
    ("on_demand", "4.1", "more than 4 times the price it had before"),
    ("on_demand", "0.24", "less than 1/4 of the price it had before"),
    ("on_demand", "1000", "more than 4 times the price it had before"),
    ("spot", "1.4", None),
    ("spot", "40", "spot above on-demand"),
    ("spot", "0.01", "less than 1/4 of the price it had before"),
]


@pytest.mark.parametrize(("purchase", "factor", "reason"), JUDGED)
def test_prices_far_off_are_quarantined(catalog: Catalog, purchase: str, factor: str, reason: str | None) -> None:
    """Up to four times the old price stands, beyond that it waits; spot is held below on-demand."""
    old = offer_of(catalog, purchase=purchase)
    judged = judge_offers(catalog, [], [at(old, old.usd_per_instance_hour * Decimal(factor))])
    assert [row.reason for row in judged.quarantined] == ([] if reason is None else [reason])
    assert len(judged.offers) == (1 if reason is None else 0)


def test_an_offer_without_a_past_is_judged_by_its_like(catalog: Catalog) -> None:
    """A region new to the catalog: other regions of the machine; a machine new to it: the provider's and the market."""
    old = offer_of(catalog)
    fair, dear = (at(old, price, region="sa-east-1") for price in ("0.9", "9"))
    assert judge_offers(catalog, [], [fair]).offers == (fair,)
    assert judge_offers(catalog, [], [dear]).quarantined[0].reason == "more than 4 times the expected price"
    machine = replace(catalog.instance_type("g4dn.xlarge"), name="g99.xlarge")
    cheap = at(old, "0.01", instance_type="g99.xlarge")
    assert judge_offers(catalog, [machine], [cheap]).quarantined[0].reason == "less than 1/4 of the expected price"


def test_a_spot_price_may_move_with_its_market(catalog: Catalog) -> None:
    """A spot price five times that of before stands where it is still below the on-demand price beside it."""
    plain, spot = offer_of(catalog), offer_of(catalog, purchase="spot")
    low = plain.usd_per_instance_hour / 10
    known = replace(catalog, offers=tuple(at(spot, low) if one is spot else one for one in catalog.offers))
    risen = at(spot, low * 5)
    assert judge_offers(known, [], [risen]).offers == (risen,)


def test_the_answers_go_over_the_catalog(catalog: Catalog) -> None:
    """The first source's price stands, one that contradicts it is quarantined, what nobody names stays as it was."""
    old = offer_of(catalog)
    first, second, wild = (at(old, price) for price in ("1.5", "1.4", "0.2"))
    answers = ask(
        FakeSource(name="own list", offers=(first,), managed=(TOKENS,)),
        FakeSource(name="others", offers=(second,)),
        FakeSource(name="wild", offers=(wild,)),
        FakeSource(name="down", error=SourceError("no")),
    )
    kept = replace(TOKENS, sku="Nova Pro input")
    done = merge_answers(catalog, [kept, replace(TOKENS, price_usd=Decimal("0.07"))], answers)
    assert len(done.offers) == len(catalog.offers)
    assert first in done.offers
    assert set(done.offers) - {first} == set(catalog.offers) - {old}
    assert set(done.managed) == {TOKENS, kept}
    assert [row.reason for row in done.quarantined] == ["more than 4 times off the price of an earlier source"]
    assert [report.error is None for report in done.reports] == [True, True, False, False]
    assert "no row of 1 can be used" in str(done.reports[2].error)
    assert done.read == 2


def test_managed_prices_are_overlaid_by_key_and_day() -> None:
    """A later day replaces, an earlier one does not; a month counts before its days, no date before all."""
    old, new = replace(TOKENS, date="2026-10"), replace(TOKENS, price_usd=Decimal("0.05"), date="2026-10-02")
    other = replace(TOKENS, region_cloud="us-west-2", date="read by hand")
    dated = replace(other, date="2020-01-01 (repo date)")
    assert set(overlay([old, dated], [new, other])) == {new, dated}
    assert set(overlay([new], [old])) == {new}


def test_a_managed_price_that_jumps_or_would_not_load_is_quarantined(catalog: Catalog) -> None:
    """One row far off its price of before, one of an unknown platform, one named wrongly: named, the rest stands."""
    good = replace(TOKENS, sku="Some Model output")
    bad = (
        replace(TOKENS, price_usd=Decimal("0.6")), replace(TOKENS, platform="nobody"),
        replace(TOKENS, sku="Nova tokens"), replace(TOKENS, price_usd=Decimal(20_000), region_cloud="x"),
    )  # fmt: skip
    done = merge_answers(catalog, [TOKENS], ask(FakeSource(name="list", managed=(good, *bad))))
    assert set(done.managed) == {TOKENS, good}
    reasons = [row.reason for row in done.quarantined]
    assert reasons[0] == "more than 4 times the price it had before"
    assert "'nobody' is not one of" in reasons[1]
    assert "is not written as its unit expects" in reasons[2]
    assert "is above 10000" in reasons[3]
    assert done.reports[0].error is None
    assert done.read == 1


def test_token_prices_take_the_names_that_plans_know() -> None:
    """The API's own id where the list's name is that model; else, or where it may be several, the name stays."""
    models = ("amazon.nova-lite-v1:0", "global.amazon.nova-lite-v1:0", "qwen.a-v1:0", "qwen.a-v2:0")
    rows = [replace(TOKENS, sku=f"{name} cache read") for name in ("Nova Lite", "Nova Pro", "A")]
    names = [row.sku.removesuffix(" cache read") for row in with_known_names(rows, models)]
    assert names == ["amazon.nova-lite-v1:0", "Nova Pro", "A"]
    units = replace(TOKENS, sku="Jobs Compute", unit="USD per DBU")
    assert with_known_names([units], models) == (units,)


def test_committed_prices_go_when_their_basis_moves(catalog: Catalog) -> None:
    """A refresh keeps reserved prices while on-demand is as it was, and drops those of a machine whose price moved."""
    managed = packaged_managed_prices()
    stated = {(one.provider, one.instance_type, one.region) for one in catalog.managed.reserved}
    basis = next(
        one for one in catalog.offers
        if one.purchase == "on_demand" and (one.provider, one.instance_type, one.region) in stated
        and any(other.purchase == "reserved_1y" and key_of(other) == key_of(one) for other in catalog.offers)
    )  # fmt: skip
    same = merge_answers(catalog, managed, ask(FakeSource(name="x", offers=(at(basis, basis.usd_per_instance_hour),))))
    assert {one.purchase for one in same.offers if key_of(one) == key_of(basis)} >= {"on_demand", "reserved_1y"}
    moved = at(basis, basis.usd_per_instance_hour * 2)
    done = merge_answers(catalog, managed, ask(FakeSource(name="x", offers=(moved,))))
    assert "reserved_1y" not in {one.purchase for one in done.offers if key_of(one) == key_of(basis)}
    assert {one.purchase for one in done.offers if key_of(one) != key_of(basis)} >= {"reserved_1y", "reserved_3y"}


def key_of(offer: Offer) -> tuple[str, str, str]:
    return (offer.provider, offer.instance_type, offer.region)


def test_a_source_with_one_good_offer_answered(catalog: Catalog) -> None:
    """Of two offers from one row one is refused: the source answered, and the good one stands."""
    good, bad = at(offer_of(catalog), "0.6"), at(offer_of(catalog, purchase="spot"), "60")
    [answer] = ask(FakeSource(name="x", offers=(good, bad)))
    answer = replace(answer, report=replace(answer.report, rows_read=1, rows_used=1))
    done = merge_answers(catalog, (), [answer])
    assert done.reports[0].error is None
    assert good in done.offers


def test_a_new_machine_needs_a_price_that_stands(catalog: Catalog) -> None:
    """A machine whose only price is quarantined does not enter the catalog; one with a price does."""
    old = offer_of(catalog)
    machines = [replace(catalog.instance_type("g4dn.xlarge"), name=name) for name in ("g98.xlarge", "g99.xlarge")]
    offers = (at(old, "0.6", instance_type="g98.xlarge"), at(old, "60", instance_type="g99.xlarge"))
    done = merge_answers(catalog, (), ask(FakeSource(name="x", instances=tuple(machines), offers=offers)))
    names = {machine.name for machine in done.instances}
    assert ("g98.xlarge" in names, "g99.xlarge" in names) == (True, False)


def test_a_snapshot_carries_tokens_and_quarantine(catalog: Catalog, tmp_path: Path) -> None:
    """Both files are written with the snapshot and read back; an empty folder may be filled, a full one not."""
    row = QuarantinedRow(
        source="s", provider="aws", instance_type="x", region="r", purchase="spot", figure="1,5\nz", reason="why"
    )
    folder = tmp_path / "new"
    folder.mkdir()
    meta = dated_meta(catalog.built_on, ["x"])
    write_snapshot(folder, catalog.instance_types, catalog.offers, meta, managed=[TOKENS], quarantined=[row])
    assert load_managed_prices(folder) == (TOKENS,)
    assert (folder / "quarantine.csv").read_text().splitlines()[1] == 's,aws,x,r,spot,"1,5 z",why'
    assert len(load_catalog(folder).offers) == len(catalog.offers)
    with pytest.raises(SourceError, match="exists already"):
        write_snapshot(folder, catalog.instance_types, catalog.offers, meta)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_sources_are_chosen_by_name_and_provider(catalog: Catalog) -> None:
    """Names and providers narrow the list; regions not given are those the catalog has prices in."""
    assert [kind.name for kind in chosen_kinds((), ("azure",))] == ["azure", "skypilot", "gpuhunt"]
    assert [kind.name for kind in chosen_kinds(("gcp",), ())] == ["gcp"]
    here = Circumstances(known=catalog, web=Web(), today=DAY, environ={})
    assert here.regions_of("aws") == ("eu-west-1", "us-east-1", "us-west-2")
    asked = replace(here, regions=("eastus", "us-east-1", "mx-central-9"))
    assert asked.regions_of("azure") == ("eastus", "mx-central-9")
    assert asked.regions_of("aws") == ("us-east-1", "mx-central-9")
    bare = replace(catalog, offers=())
    assert "name regions with --region" in str(chosen_kinds(("azure",), ())[0].why_not(replace(here, known=bare)))
    elsewhere = replace(here, regions=("eastus",))
    assert {kind.name for kind in KINDS if "regions asked for" in (kind.why_not(elsewhere) or "")} == {
        "aws", "aws-spot", "aws-spot-advisor", "gcp", "digitalocean", "bedrock",
    }  # fmt: skip


def test_every_kind_says_what_it_lacks_or_can_be_made(catalog: Catalog) -> None:
    """With its secrets and table a kind makes sources with distinct names; without them it says what to set."""
    environ = {"TONNAGE_GCP_API_KEY": "k", "DIGITALOCEAN_TOKEN": "t"}
    here = Circumstances(known=catalog, web=Web(), today=DAY, environ=environ, base_url="http://127.0.0.1:9/t.csv")
    bare = replace(here, environ={}, base_url=None)
    names = []
    for kind in KINDS:
        assert kind.gives
        assert kind.needs
        if kind.missing(here) is None:
            names += [source.name for source in kind.build(here)]
    assert len(names) == len(set(names)) >= 12
    assert {kind.name for kind in KINDS if kind.missing(bare) is not None} >= {"gcp", "digitalocean", "databricks"}
