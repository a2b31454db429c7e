"""`tonnage places fill`: the command, what it forecasts without a network, and what it says on bad input."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.places.google.test_filling import COMMIT, written

from tonnage import api
from tonnage.errors import InputError
from tonnage.settings import load_settings

pytestmark = pytest.mark.heavy


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects anywhere fails."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a forecast asks nobody")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)


HUB = f'sources = ["{COMMIT}"]\nsize_gib = 200\ndata_gib = 100\n'


@pytest.mark.usefixtures("no_network")
def test_the_forecast_has_every_phase_and_what_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 GiB at 1 Gbit/s are 859 s: of the cheap machine once, of the GPU machine in each run; nothing is asked."""
    prices = "usd_per_hour = 0.4\nusd_per_gib_month = 0.1\n"
    written(tmp_path, HUB + prices, monkeypatch)
    answer = api.fill_place("gpu", api.FillOptions(dry_run=True))
    [one] = answer.found.forecasts
    hours = 100 * 2**30 * 8 / 1e9 / 3600
    assert one.phases[0].hours == pytest.approx(hours)
    assert one.usd == pytest.approx(0.4 * hours)
    assert [each.monthly_usd for each in one.phases if each.monthly_usd] == pytest.approx([20.0, 20.0])
    document = json.loads(answer.to_json())
    [hour] = [document["forecasts"][0]["saved_usd_per_run"] / hours]
    assert hour == pytest.approx(price_of(tmp_path))
    services = [each["service"].rpartition("/")[2] for each in document["forecasts"][0]["requests"]]
    assert services == ["disks", "instances", "snapshots", "disks"]
    assert answer.to_json() == api.fill_place("gpu", api.FillOptions(dry_run=True)).to_json()
    assert "costs $0.10 once" in str(answer)


def price_of(home: Path) -> float:
    """An hour of the place, as a run's dry run has it."""
    assert home
    [place] = [one for one in api.places().found if one.name == "gpu"]
    assert place.price is not None
    return place.price.usd_per_hour


@pytest.mark.usefixtures("no_network")
def test_what_has_no_price_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never zero."""
    written(tmp_path, HUB, monkeypatch)
    answer = api.fill_place("gpu", api.FillOptions(dry_run=True))
    assert answer.found.forecasts[0].usd is None
    assert "What filling costs is not known: fill.weights.usd_per_hour" in " ".join(str(answer).split())
    with pytest.raises(InputError, match=r"places\.gpu\.fill has no rows") as raised:
        api.fill_place("gpu", api.FillOptions(dry_run=True, disk=("rows",)))
    assert raised.value.hint == "it has weights"


def test_places_without_disks_to_fill_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that names none, and one of a kind that has none."""
    written(tmp_path, HUB, monkeypatch)
    text = (tmp_path / "places.toml").read_text().partition("[places.gpu.fill")[0]
    ssh = '[places.box]\nkind = "ssh"\nhost = "a"\nfolder = "/home/a"\ncores = 1\nmemory_gib = 1\n'
    (tmp_path / "places.toml").write_text(text + ssh)
    with pytest.raises(InputError, match="has no disk to fill"):
        api.fill_place("gpu")
    with pytest.raises(InputError, match="of the kind ssh"):
        api.fill_place("box")


def test_a_place_of_aws_says_what_is_used_there(tmp_path: Path) -> None:
    """There is no disk to fill; the hint names what is mounted in its place."""
    (tmp_path / "places.toml").write_text(
        '[places.vm]\nkind = "ec2"\nregion = "us-east-1"\nbucket = "s3://runs/t"\ncores = 1\nmemory_gib = 1\n'
        f'image = "registry.example/t@sha256:{"0" * 64}"\nami = "ami-0123456789abcdef0"\ninstance_profile = "t"\n'
        'instance_type = "m5.large"\ntime_limit_minutes = 5\nsubnets = ["s"]\nsecurity_groups = ["g"]\n'
    )
    settings = load_settings({}, {"TONNAGE_HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(InputError, match="share no disk that is filled") as caught:
        api.fill_place("vm", settings=settings)
    assert "FSx for Lustre" in str(caught.value.hint)
