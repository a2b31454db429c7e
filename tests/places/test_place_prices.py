"""What an hour at a place costs is what the plan says that its machine costs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api.launching import _doubts_of
from tonnage.api.place_prices import HourlyLine, HourlyPrice, price_at, price_doubts
from tonnage.api.place_verbs import places
from tonnage.places.aws.place import EC2Place
from tonnage.places.file import SSHPlace
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.planning.plan import MachineOption
from tonnage.settings import current_settings

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
TERMS: dict[str, Any] = {
    "kind": "ssh", "host": "box", "folder": "/home/me", "cores": 1, "memory_gib": 1, "env": {}
}  # fmt: skip


def place_of(option: MachineOption) -> SSHPlace:
    kind = type(f"On{option.platform}", (SSHPlace,), {"platform": option.platform, "__module__": __name__})
    found: SSHPlace = kind(
        **TERMS, machine=f"{option.provider}/{option.instance_type}", region=option.region, purchase=option.purchase
    )
    return found


def test_the_hour_of_a_place_is_the_hour_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every machine of a plan over all platforms: the same offer, with the same fee, by the same function."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    settings = current_settings()
    file = (ROOT / "examples" / "bert-finetune.tonnage.yaml").read_text()
    assert "platforms" not in file
    options = [
        one for one in tonnage.plan(file, settings=settings).options
        if isinstance(one, MachineOption) and one.count == 1 and not one.purchase.startswith("reserved")
    ]  # fmt: skip
    assert {"vm", "databricks", "sagemaker"} <= {one.platform for one in options}
    for option in options:
        price = price_at(settings, place_of(option))
        assert price is not None, option
        assert price.usd_per_hour == pytest.approx(option.usd_per_instance_hour), option
        assert len(price.lines) == 1 + (option.platform != "vm")


def test_a_price_that_is_written_down_goes_before_and_one_that_is_nowhere_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    settings = current_settings()
    stated = SSHPlace(**TERMS, usd_per_hour=3.5, machine="aws/p5.48xlarge", region="us-east-1", purchase="on_demand")
    price = price_at(settings, stated)
    assert price is not None
    assert [(line.usd_per_hour, line.source) for line in price.lines] == [(3.5, "places.toml")]
    for known in ({}, {"machine": "aws/p5.48xlarge"}, {"machine": "aws/none", "region": "us-east-1"}):
        assert price_at(settings, SSHPlace(**TERMS, **known, purchase="on_demand")) is None


def test_of_several_machines_the_dearest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """«At most» has to hold whichever a run gets; one without a price leaves it open."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    settings = current_settings()

    def price(*candidates: str) -> float | None:
        place = SkyPilotPlace(
            kind="skypilot", bucket="s3://runs/tonnage", image=f"a@sha256:{'0' * 64}", candidates=candidates, cores=1,
            memory_gib=1, time_limit_minutes=60,
        )  # fmt: skip
        found = price_at(settings, place)
        return None if found is None else found.usd_per_hour

    aws, google = price("aws/us-east-1/p5.48xlarge"), price("gcp/us-central1/a3-highgpu-8g")
    assert aws is not None
    assert google is not None
    assert price("aws/us-east-1/p5.48xlarge", "gcp/us-central1/a3-highgpu-8g") == max(aws, google)
    assert price("aws/us-east-1/p5.48xlarge", "gcp/us-central1/z9") is None


EC2_TERMS: dict[str, Any] = {
    "kind": "ec2", "region": "us-east-1", "bucket": "s3://runs/t", "cores": 2, "memory_gib": 8, "spot": True,
    "image": f"registry.example/t@sha256:{'0' * 64}", "ami": "ami-0123456789abcdef0", "instance_profile": "run",
    "instance_type": "p5.48xlarge", "time_limit_minutes": 240, "subnets": ["subnet-1"], "security_groups": ["sg-1"],
}  # fmt: skip
TODAY = date(2026, 11, 27)


def hour(usd: float, source: str, read_on: date | None) -> HourlyPrice:
    return HourlyPrice(lines=(HourlyLine(what="2 machines", usd_per_hour=usd, source=source, read_on=read_on),))


@pytest.mark.parametrize(("price", "most", "doubts", "told"), [
    (hour(100.0, "a list", date(2026, 11, 20)), 60.0, [], "catalog, 7 days old"),
    (hour(100.0, "a list", None), None, ["undated (a list)"], "catalog, undated"),
    (hour(100.0, "a list", date(2025, 8, 29)), None, ["455 days ago (a list)"], "catalog, 455 days old"),
    (hour(100.0, "places.toml", None), None, [], "places.toml"),
    (hour(100.0, "places.toml", None), 40.0, ["$50.00 an hour, is above most_usd_per_hour = 40"], "places.toml"),
])  # fmt: skip
def test_what_is_doubtful_of_a_price_is_said(
    price: HourlyPrice, most: float | None, doubts: list[str], told: str
) -> None:
    """One that is undated or old, and a bid that a machine's price is above; the writer's own is not doubted."""
    place = EC2Place(**EC2_TERMS, nodes=2, most_usd_per_hour=most)
    found = [said for said, mends in price_doubts(place, price, today=TODAY) if mends]
    assert len(found) == len(doubts)
    assert all(wanted in said for said, wanted in zip(found, doubts, strict=True))
    assert price.described(TODAY) == told


def test_places_are_listed_with_the_price_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = {"kind": "digitalocean", "region": "tor1", "bucket": "s3://runs/t", "boot_image": "gpu-h100x8-base",
             "image": EC2_TERMS["image"], "instance_type": "gpu-h100x8-640gb", "ssh_keys": ["1"], "cores": 160,
             "time_limit_minutes": 720, "memory_gib": 1920}  # fmt: skip
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
    (tmp_path / "places.toml").write_text(f"[places.drop]\n{lines}")
    [found] = places(settings=current_settings()).found
    assert found.price is not None
    assert found.price.usd_per_hour == 47.6
    assert found.price.described(TODAY) == "catalog, undated"


def test_the_age_of_a_price_is_that_of_the_settings_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run says the same bytes on another day where its clock is set."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    line = HourlyLine(what="compute", usd_per_hour=2.0, source="a list", read_on=date(2026, 11, 1))
    price = HourlyPrice(lines=(line,))
    place = EC2Place(**EC2_TERMS)
    soon = replace(current_settings(), as_of=datetime(2026, 12, 1, tzinfo=UTC))
    late = replace(soon, as_of=datetime(2028, 11, 1, tzinfo=UTC))
    assert soon.today == date(2026, 12, 1)
    assert _doubts_of(soon, place, price) == ()
    assert [one.message for one in _doubts_of(late, place, price)] == [
        "the price of compute was read 731 days ago (a list)"
    ]
