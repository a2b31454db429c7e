"""Pages of budgets, gateways and prices: the documents of the commands, and what a reader may type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Open
from tests.web.scenes import dearer, gateway_file, running, spend, status

import tonnage
from tonnage.gateway.top.keeping import GatewayLooks


def test_budgets_and_who_spent_them(server: Open, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left, and the runs that took it: as the commands say it, and by name from the list."""
    from tonnage.cli import run

    spend(home)
    client = server()
    for path, words in (("budgets", ["list"]), ("budgets/ranking", ["runs", "ranking"])):
        assert run(["budgets", *words, "-o", "json"]) == 0
        assert client.get(f"/api/v1/{path}").text == capsys.readouterr().out
    left = client.get("/api/v1/budgets").json()["budgets"][0]
    assert (left["spent_usd"], left["committed_usd"], left["left_usd"]) == (1.25, 3.0, 5.75)
    runs = client.get("/api/v1/budgets/ranking").json()["runs"]
    assert [(one["run"], one["state"], one["spent_usd"]) for one in runs] == [
        ("second", "under way", None), ("first", "settled", 1.25)
    ]  # fmt: skip
    assert 'href="/budgets/ranking"' in client.get("/budgets").text
    answer = client.get("/api/v1/budgets/rankin")
    assert (answer.status_code, "did you mean 'ranking'" in answer.text) == (404, True)


def test_a_running_gateway(server: Open, tmp_path: Path) -> None:
    """Rates between two looks, circuits and money by key, as `gateway top` words them; on the page the spending too."""
    pages = iter([status(10.0, 100.0), status(12.0, 300.0), status(13.0, 300.0), status(14.0, 500.0)])
    with running(pages) as port:
        gateway_file(tmp_path, port)
        client = server(folder=tmp_path)
        document = client.get("/api/v1/gateways/chat").json()
        assert document["schema"] == "tonnage/gateway-top@1"
        assert document["seconds"] == 2.0
        assert document["deployments"][0]["requests_per_s"] == 100.0
        assert document["deployments"][0]["circuit"] == "open"
        assert document["keys"][0]["usd_per_hour"] == pytest.approx(360.0)
        text = client.get("/gateways/chat").text
        assert "Spent since" in text
        assert 'href="/gateways/chat/spend"' in text
        assert client.get("/api/v1/gateways").json()["gateways"][0]["figures_at"] == f"http://127.0.0.1:{port}"
        answer = client.get("/api/v1/gateways/chat?sort=colour")
        assert (answer.status_code, "nothing is sorted by 'colour'" in answer.text) == (400, True)


def test_looks_are_shared_and_an_old_one_is_not_used() -> None:
    """The second reader does not wait; after a pause the difference of an hour is not shown as of now."""
    now, waited = [0.0], []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    def pages() -> Iterator[dict[str, Any]]:
        while True:
            yield status(now[0], 100.0 * now[0])

    with running(pages()) as port:
        looks = GatewayLooks(clock=lambda: now[0], wait=wait)
        url = f"http://127.0.0.1:{port}"
        assert looks.top(url).seconds == 1.0
        now[0] += 3.0
        assert looks.top(url).seconds == 3.0
        assert waited == [1.0]
        now[0] += 3600.0
        assert looks.top(url).seconds == 1.0
        assert waited == [1.0, 1.0]


def test_a_gateway_that_is_not_there(server: Open, tmp_path: Path) -> None:
    """JSON has the problem of the command; the page says it and shows what was spent; the list names a bad file."""
    path = gateway_file(tmp_path, 1)
    client = server(folder=tmp_path)
    answer = client.get("/api/v1/gateways/chat")
    assert (answer.status_code, "no gateway answers" in answer.json()["detail"]) == (503, True)
    page = client.get("/gateways/chat", headers={"accept": "text/html"})
    assert (page.status_code, "no gateway answers" in page.text) == (200, True)
    said = client.get("/api/v1/gateways/chat/spend?by=route&days=7").json()
    options = tonnage.GatewaySpendOptions(by="route", since_s=7 * 86400.0)
    wanted = json.loads(tonnage.gateway_spend(path, options).to_json())
    assert said | {"since": ""} == wanted | {"since": ""}
    assert client.get("/api/v1/gateways/chat/spend?by=colour").status_code == 400
    assert "Nothing was spent since then." in client.get("/gateways/chat/spend").text
    path.write_text("routes: 3\n", encoding="utf-8")
    assert "routes" in client.get("/api/v1/gateways").json()["gateways"][0]["problem"]
    assert client.get("/api/v1/gateways/chat").status_code == 400


def test_prices_from_snapshot_to_snapshot(server: Open, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A price that doubled is shown with its change and drawn; the document is the command's; names are checked."""
    from tonnage.cli import run

    dearer(home)
    client = server()
    asked = "machine=p5.48xlarge&region=us-west-2&purchase=spot"
    words = ["p5.48xlarge", "--region", "us-west-2", "--purchase", "spot"]
    assert run(["catalog", "history", *words, "-o", "json"]) == 0
    said = client.get(f"/api/v1/catalog/history?{asked}")
    assert said.text == capsys.readouterr().out
    first, second = said.json()["prices"]
    assert second["usd_per_instance_hour"] == 2 * first["usd_per_instance_hour"]
    page = client.get(f"/catalog/history?{asked}").text
    assert "+100.0 %" in page
    assert "<svg" in page
    assert 'value="us-west-2"' in page
    assert client.get("/api/v1/catalog/history").json()["prices"] == []
    answer = client.get("/api/v1/catalog/history?machine=p5.48xlage")
    assert (answer.status_code, "p5.48xlarge" in answer.json()["hint"]) == (404, True)
    assert len(client.get("/api/v1/catalog/snapshots").json()["snapshots"]) == 2
