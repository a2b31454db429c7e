"""A run of one place as another's: what leaves a place is priced by who bills it, and the steps are in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tonnage.catalog import load_catalog
from tonnage.relocation.copying import Site, copied_to, copy_commands, copy_s, egress
from tonnage.relocation.relocation import Copied, Moved, PlaceSide, PredictedCost, Relocation, body_diff, steps_of
from tonnage.sizing.estimates import Figure

EAST, WEST = Site("aws", "us-east-1"), Site("aws", "us-west-2")
IOWA = Site("gcp", "us-central1")
MOVED = Moved(
    target="bert.tonnage.yaml", run="bert", begun=False, alive=False, options=(), rewritten=(), images=None,
    builds=False, secrets=(), secret_commands=(),
)  # fmt: skip


def side(place: str, usd: float | None = None, **more: Any) -> PlaceSide:
    figure = None if usd is None else Figure(value=usd, low=usd, high=usd)
    predicted = None if figure is None else PredictedCost(line="", cost_usd=figure, time_s=None)
    return PlaceSide(place=place, kind="ssh", usd_per_hour=None, most_usd_a_job=None, predicted=predicted,
                why_unpredicted="" if predicted else "no file", commands=(), script="", **more)  # fmt: skip


def copy(usd_per_gb: str | None, **more: Any) -> Copied:
    services = load_catalog().services
    charges = egress(services, EAST, IOWA, 100.0) if usd_per_gb else None
    document: dict[str, Any] = {"what": "rows", "how": "copied", "origin": "s3://a/b", "target": "gs://c/b",
                            "size_gb": 100.0, "size_basis": "stated", "charges": charges, "time_s": 800.0}  # fmt: skip
    return Copied(**document | more)


@pytest.mark.parametrize(
    ("origin", "target", "usd"),
    [
        (EAST, EAST, 0.0),  # the same region
        (EAST, WEST, 2.0),  # services.csv: 0.02 USD a GB to another region
        (EAST, IOWA, 9.0),  # 0.09 USD a GB to the internet
        (Site(None), IOWA, 0.0),  # a machine of one's own
        (Site("aws"), IOWA, None),  # no region: which price holds is not known
        (EAST, Site("aws"), None),
        (Site("huggingface", "eu"), EAST, None),  # nobody in the catalog
    ],
)
def test_what_leaves_a_provider_costs_its_list_price(origin: Site, target: Site, usd: float | None) -> None:
    """100 GB, by the prices of the packaged catalog; what is not known is None and never zero."""
    charges = egress(load_catalog().services, origin, target, 100.0)
    assert usd == (None if charges is None else pytest.approx(sum(one.usd for one in charges)))


def test_tiers_count_and_an_unknown_size_has_no_price() -> None:
    """AWS charges 0.09 up to 10,240 GB and 0.085 from there."""
    charges = egress(load_catalog().services, EAST, IOWA, 20_240.0)
    assert charges is not None
    assert [(one.quantity, float(one.usd_per_unit)) for one in charges] == [(10_240.0, 0.09), (10_000.0, 0.085)]
    assert egress(load_catalog().services, EAST, IOWA, None) is None
    assert egress(load_catalog().services, EAST, IOWA, 0.0) == ()
    assert copy_s(None, 1.0) is None
    assert copy_s(1.0, 8.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("origin", "store", "commands"),
    [
        ("s3://a/x/*.jsonl", "s3://b/t", ["aws s3 cp --recursive s3://a/x s3://b/t/data/x"]),
        ("gs://a/x/y.csv", "s3://b/t", ["gcloud storage cp gs://a/x/y.csv s3://b/t/data/y.csv"]),
        ("s3://a/x", "/Volumes/c/s/v/t",
         ["aws s3 cp --recursive s3://a/x moved/x",
          "databricks fs cp --recursive moved/x dbfs:/Volumes/c/s/v/t/data/x"]),
        ("abfss://a/x", "s3://b/t", []),  # no command here reads it
    ],
)  # fmt: skip
def test_copies_are_commands_of_the_providers(origin: str, store: str, commands: list[str]) -> None:
    """One command where one reads both stores, else two by way of this machine."""
    assert list(copy_commands(origin, copied_to(origin, store))) == commands


def test_steps_go_from_the_question_to_the_way_back() -> None:
    """A file is tried first; a run under way saves before it goes on."""
    found = steps_of(MOVED, side("old"), side("new"), (copy("0.09", commands=("aws s3 cp a b",)),))
    assert [one.title for one in found] == [
        "Ask new whether it can carry the run", "Copy rows", "Look at what would be sent", "Try it for a short while",
        "Carry it out", "See that nothing is left at old", "The way back",
    ]  # fmt: skip
    begun = replace(MOVED, begun=True, alive=True, options=("--processes", "4"), secrets=("HF_TOKEN",),
                    secret_commands=("databricks secrets put-secret keys HF_TOKEN",), rewritten=(("s3://a", "gs://b"),),
                    images=("one/t@sha256:0", "other/t@sha256:0"))  # fmt: skip
    lines = [line for one in steps_of(begun, side("local"), side("new"), ()) for line in one.commands]
    assert lines == [
        "tonnage places check new", "skopeo copy --all docker://one/t@sha256:0 docker://other/t",
        "databricks secrets put-secret keys HF_TOKEN", "tonnage stop bert",
        "tonnage resume bert --on new --processes 4", "tonnage resume bert --on local",
    ]  # fmt: skip


def test_copies_are_paid_back_by_what_each_run_saves() -> None:
    """9 USD once, 3 USD a run: after 3 runs; never where the other place is dearer or a figure is not known."""

    def found(before: float | None, after: float | None, *copies: Copied) -> Relocation:
        return Relocation(run="bert", before=side("old", before), after=side("new", after), changes=(), copies=copies,
                          steps=(), diff=(), gbit_per_s=1.0)  # fmt: skip

    once = found(10.0, 7.0, copy("0.09"), copy("0.09", how="read"))  # what is read where it is, is not copied
    assert (once.copy_usd, once.saved_usd, once.paid_back_after_runs) == (9.0, 3.0, 3.0)
    assert once.copy_s == 800.0
    assert found(7.0, 10.0, copy("0.09")).paid_back_after_runs is None
    assert found(None, 10.0, copy("0.09")).saved_usd is None
    unknown = found(10.0, 7.0, copy(None), copy("0.09", time_s=None))
    assert (unknown.copy_usd, unknown.copy_s, unknown.paid_back_after_runs) == (None, None, None)


def test_the_difference_of_equal_bodies_is_empty() -> None:
    assert body_diff("a\n", "a\n", names=("one", "other")) == ()
