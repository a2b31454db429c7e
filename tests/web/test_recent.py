"""One reading of a list answers all who ask for it in one second, each from their own projects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from tests.web.conftest import Open

from tonnage.reports.blocks import Page
from tonnage.reports.rendering import Report
from tonnage.testing.runs import write_run
from tonnage.web.asked import Shown
from tonnage.web.recent import SHARED_S, RecentAnswers


def shown(title: str) -> Shown:
    return Shown(report=Report(page=lambda: Page(title=title, blocks=()), document=dict, columns=(), rows=list))


def test_a_second_later_it_is_read_again() -> None:
    """By key; something that was done is seen at once."""
    now, read = [0.0], []
    recent = RecentAnswers(clock=lambda: now[0])

    def asked(key: str) -> str:
        def make() -> Shown:
            read.append(key)
            return shown(f"{key} {len(read)}")

        return recent.get(key, make).report.page().title

    assert [asked("a"), asked("a"), asked("b")] == ["a 1", "a 1", "b 2"]
    now[0] = SHARED_S
    assert asked("a") == "a 3"
    recent.forget()
    assert asked("a") == "a 4"


def test_who_asks_meanwhile_waits_for_the_same() -> None:
    """Eight at once: one reading."""
    recent, read, going = RecentAnswers(), list[int](), Event()

    def make() -> Shown:
        read.append(1)
        going.wait(0.2)
        return shown("one")

    with ThreadPoolExecutor(8) as pool:
        titles = list(pool.map(lambda _: recent.get("a", make).report.page().title, range(8)))
    assert titles == ["one"] * 8
    assert read == [1]


def test_a_refusal_is_not_kept(server: Open, home: Path) -> None:
    """A parameter that is none is refused each time; the list beside it is answered."""
    write_run(home / "runs" / "teach")
    client = server()
    for _ in range(2):
        assert client.get("/api/v1/runs?colour=red").status_code == 400
        assert client.get("/api/v1/runs").json()["runs"][0]["name"] == "teach"
    assert client.get("/api/v1/runs?limit=0").json()["runs"] == []
    assert len(client.get("/api/v1/runs").json()["runs"]) == 1
