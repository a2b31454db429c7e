"""One reading of a list answers all who ask for it in one second, each from their own projects."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from tests.web.conftest import Open

from tonnage.reports.blocks import Page
from tonnage.reports.rendering import Report
from tonnage.testing.runs import write_run
from tonnage.web.asked import Shown
from tonnage.web.recent import SHARED_S, UNCHANGED_S, RecentAnswers


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


def test_what_has_not_changed_is_kept_longer() -> None:
    """With a stamp of its files for three seconds, and not at all once the stamp is another."""
    now, read = [0.0], []
    recent = RecentAnswers(clock=lambda: now[0])

    def asked(stamp: int) -> str:
        def make() -> Shown:
            read.append(stamp)
            return shown(f"{len(read)}")

        return recent.get("run", make, stamp).report.page().title

    first = [asked(1), asked(1), asked(2)]
    now[0] = SHARED_S
    second = asked(2)
    now[0] = UNCHANGED_S
    assert (first, second, asked(2)) == (["1", "1", "2"], "2", "3")


def test_a_run_that_moved_on_is_read_anew(server: Open, home: Path) -> None:
    """At once: a line of its metrics changes the stamp, and a run that is gone is gone."""
    folder = home / "runs" / "teach"
    write_run(folder, finished=False)
    client = server()
    before = client.get("/api/v1/runs/teach")
    assert client.get("/api/v1/runs/teach", headers={"if-none-match": before.headers["etag"]}).status_code == 304
    line = (folder / "metrics.jsonl").read_text().splitlines()[-1]
    step = json.loads(line)["step"]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**json.loads(line), "step": step + 7}) + "\n")
    after = client.get("/api/v1/runs/teach")
    assert after.headers["etag"] != before.headers["etag"]
    assert str(step + 7) in after.text
    shutil.rmtree(folder)
    assert client.get("/api/v1/runs/teach").status_code == 404


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
