"""Names in tables lead to their pages, so that no list of links repeats them; what is in no table is linked above."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.web.scenes import service

from tonnage.reports.blocks import Column, Page, Table
from tonnage.reports.html import render_html
from tonnage.testing.runs import write_run

Open = Callable[..., Any]


def test_names_of_the_first_column_are_links() -> None:
    """Escaped, and no other cell; a name without an address stays a text."""
    table = Table(columns=(Column(title="run"), Column(title="of")), rows=(("a<b", "teach"), ("teach", "a<b")))
    found = render_html(Page(title="t", blocks=(table,)), fragment=True, links={"teach": "/runs/teach?a=1&b=2"})
    assert found.count("<a ") == 1
    assert '<a href="/runs/teach?a=1&amp;b=2">teach</a>' in found
    assert "a&lt;b" in found


def test_home_and_runs_lead_to_runs_and_services(server: Open, home: Path) -> None:
    """What runs, what it costs now; each listed name is a link once, in its table."""
    write_run(home / "runs" / "teach")
    service(home)
    client = server()
    front, listed = client.get("/").text, client.get("/runs").text
    assert "0 runs under way or lost, 1 service ($1.40 an hour now), 0 alerts." in front
    assert "No run is under way." in front
    for page, names in ((front, ("/services/chat",)), (listed, ("/services/chat", "/runs/teach"))):
        for name in names:
            assert page.count(f'<td class="left"><a href="{name}">') == 1
            assert page.count(f'href="{name}"') == 1
    assert client.get("/api/v1/home").json()["services"][0] == {
        "name": "chat", "state": "runs", "url": "http://127.0.0.1:8000", "usd_per_hour": 1.4
    }  # fmt: skip
    assert 'a href="/runs/teach"' in client.get("/runs?fragment=1").text
