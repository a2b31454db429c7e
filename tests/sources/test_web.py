"""The web as the sources read it: attempts, waits, time limits, the cache, pages that never end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tonnage.errors import SourceError
from tonnage.sources import FetchLimits, ResponseCache, Watch, Web
from tonnage.sources.web import follow_pages

PATH = "/v2/sizes"


@pytest.mark.parametrize(
    ("faults", "requests"),
    [
        (["500", "ok"], 2),
        (["503", "429", "ok"], 3),
        (["429 7", "ok"], 2),
        (["reset", "ok"], 2),
        (["cut", "ok"], 2),
        (["text", "ok"], 2),
    ],
)
def test_what_may_pass_is_tried_again(server: Any, web: Web, faults: list[str], requests: int) -> None:
    """A server error, 429, a reset, a cut transfer and an answer that is not JSON are each followed by the answer."""
    server.faults.queues[PATH] = faults
    assert "sizes" in web.json(server.url + PATH)
    assert len(server.asked) == requests


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("500", "failed 3 times, last with status 500"),
        ("429", "failed 3 times, last with status 429"),
        ("429 3600", "asks to wait 3600 s"),
        ("404", "answered status 404"),
        ("401", "refused access"),
        ("302", "answered status 302"),
        ("text", "failed 3 times, last with not JSON"),
        ("html", "a web page instead of data"),
        ("reset", "failed 3 times"),
        ("cut", "failed 3 times"),
        ("hang", "failed 3 times, last with ReadTimeout"),
    ],
)
def test_what_does_not_pass_is_a_source_error(server: Any, web: Web, fault: str, why: str) -> None:
    """Each lasting fault is a SourceError that says what happened."""
    server.faults.queues[PATH] = [fault]
    quick = replace(web, limits=replace(web.limits, timeout_s=0.2)) if fault == "hang" else web
    with pytest.raises(SourceError, match=why):
        quick.json(server.url + PATH)


def test_retry_after_is_honoured(server: Any, web: Web) -> None:
    """The wait is at least what the server asked for, as seconds or as a date; else it doubles, with jitter."""
    moment = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    server.faults.queues[PATH] = ["429 7", f"429 {moment}", "ok"]
    web.json(server.url + PATH)
    seven, about_thirty = web.watch.waits  # type: ignore[attr-defined]
    assert seven == 7
    assert 20 < about_thirty <= 30
    web.watch.waits.clear()  # type: ignore[attr-defined]
    server.faults.queues[PATH] = ["500", "500", "ok"]
    web.json(server.url + PATH)
    first, second = web.watch.waits  # type: ignore[attr-defined]
    assert 0.005 <= first <= 0.015
    assert 0.01 <= second <= 0.03


def test_an_answer_that_did_not_change_comes_from_disk(server: Any, web: Web, tmp_path: Path) -> None:
    """With an ETag the second question is conditional and the kept answer is used; a changed answer replaces it."""
    server.etags = True
    kept = replace(web, cache=ResponseCache(tmp_path))
    first = kept.json(server.url + PATH)
    assert kept.json(server.url + PATH) == first
    assert "if-none-match" not in server.headers[0]
    assert "if-none-match" in server.headers[1]
    server.sizes = []
    assert kept.json(server.url + PATH)["sizes"] == []


def test_a_young_answer_is_not_asked_again(server: Any, web: Web, tmp_path: Path) -> None:
    """Within the age allowed the disk answers, and the day of that reading is known; later the server is asked."""
    kept, before = replace(web, cache=ResponseCache(tmp_path), max_age_s=3600.0, days=[]), datetime.now(UTC)
    kept.json(server.url + PATH)
    kept.json(server.url + PATH)
    assert len(server.asked) == 1
    later = datetime.now(UTC)
    assert before.date() <= kept.read_on(later.date()) <= later.date()
    replace(kept, max_age_s=0.0).json(server.url + PATH)
    assert len(server.asked) == 2


def test_a_damaged_cache_is_read_anew(server: Any, web: Web, tmp_path: Path) -> None:
    """A kept file that was cut or altered is not used; one that is very old is pruned."""
    cache = ResponseCache(tmp_path)
    kept = replace(web, cache=cache, max_age_s=3600.0)
    kept.json(server.url + PATH)
    [file] = tmp_path.iterdir()
    file.write_text(file.read_text()[:-5])
    kept.json(server.url + PATH)
    assert len(server.asked) == 2
    cache.prune(datetime.now(UTC) + timedelta(days=31))
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_only_costs_time(server: Any, web: Web, tmp_path: Path) -> None:
    """A file where the folder should be: the answer is there all the same."""
    (tmp_path / "file").write_text("")
    kept = replace(web, cache=ResponseCache(tmp_path / "file"), max_age_s=3600.0)
    assert "sizes" in kept.json(server.url + PATH)


def test_a_secret_is_in_no_message_and_no_file(server: Any, web: Web, tmp_path: Path) -> None:
    """A header's secret reaches the server and nothing else; keys in addresses are blanked."""
    kept = replace(web, cache=ResponseCache(tmp_path), max_age_s=3600.0)
    secret = {"Authorization": "Bearer s3cret"}
    kept.json(server.url + PATH, headers=secret)
    assert server.headers[0]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in "".join(path.read_text() for path in tmp_path.iterdir())
    server.faults.queues[PATH] = ["403"]
    with pytest.raises(SourceError) as refused:
        replace(kept, cache=None).json(server.url + f"{PATH}?token=s3cret", headers=secret)
    assert "s3cret" not in refused.value.message


def test_time_is_up(server: Any) -> None:
    """A watch whose time is up, or that was stopped, ends the attempts."""
    server.faults.queues[PATH] = ["500"]
    limits = FetchLimits(timeout_s=1, attempts=100, wait_s=0.01)
    with pytest.raises(SourceError, match="the time limit was reached"):
        Web(limits=limits, watch=Watch(limit_s=0.1)).json(server.url + PATH)
    stop = Event()
    stop.set()
    with pytest.raises(SourceError, match="stopped"):
        Web(limits=limits, watch=Watch(stop=stop)).json(server.url + PATH)


ENDLESS = [
    ("the same page again", lambda _page: ([1], 0)),
    ("new pages of the same content", lambda page: ([1, 2], page + 1)),
    ("too many pages", lambda page: ([page], page + 1)),
]


@pytest.mark.parametrize(("how", "ask"), ENDLESS)
def test_pages_that_never_end_are_an_error(how: str, ask: Any) -> None:
    """A loop of pages ends in a SourceError, however it goes round."""
    with pytest.raises(SourceError, match="never end"):
        list(follow_pages(0, ask, what=how, most=50))


def test_empty_pages_are_no_loop() -> None:
    """Several pages without items may stand between others, and the last page ends it."""
    pages = {0: ([], 1), 1: ([], 2), 2: ([7], None)}
    assert [item for page in follow_pages(0, pages.__getitem__, what="x") for item in page] == [7]
