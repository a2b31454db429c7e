"""What an hour at a place costs is what the plan says that its machine costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api.place_prices import price_at
from tonnage.places.file import AnyPlace, SSHPlace
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.planning.plan import MachineOption
from tonnage.settings import current_settings

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
TERMS: dict[str, Any] = {
    "kind": "ssh", "host": "box", "folder": "/home/me", "cores": 1, "memory_gib": 1, "env": {}
}  # fmt: skip


def place_of(option: MachineOption) -> AnyPlace:
    kind = type(f"On{option.platform}", (SSHPlace,), {"platform": option.platform, "__module__": __name__})
    found: AnyPlace = kind(
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
