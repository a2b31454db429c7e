"""The page in a real browser: every page reads well, a moved slider plans anew, the link shares it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from axe_playwright_python.sync_playwright import Axe
from tests.web.conftest import DAY, EXAMPLES, listening
from tests.web.scenes import dearer, gateway_file, running, service, spend, status

from tonnage.settings import current_settings
from tonnage.testing.runs import write_run
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer
from tonnage.web.keys import KeyFile

pytestmark = pytest.mark.browser
HISTORY = "/catalog/history?machine=p5.48xlarge&region=us-west-2&purchase=spot"
COMPARED = "/compare/compare~multi-cloud-machines"
PAGES = ("/", "/workloads", "/plan/bert-finetune", "/gains/bert-finetune", COMPARED, "/runs", "/runs/teach",
         "/runs/teach/logs", "/services/chat", "/budgets", "/budgets/ranking", "/gateways",
         "/gateways/chat", "/gateways/chat/spend",
         "/catalog/gpus", "/catalog/snapshots", HISTORY, "/places", "/alerts", "/audit", "/settings",
         "/login")  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workloads")
    write_run(home / "runs" / "teach")
    service(home)
    spend(home)
    dearer(home)
    for path in (*EXAMPLES.glob("*.yaml"), *(EXAMPLES / "compare").glob("*.yaml")):
        place = folder / path.relative_to(EXAMPLES)
        place.parent.mkdir(exist_ok=True)
        shutil.copy(path, place)
    pages = (status(10.0 + number, 40.0 * number) for number in itertools.count())
    with pytest.MonkeyPatch.context() as patched, running(pages) as port:
        gateway_file(folder, port)
        patched.setenv("TONNAGE_HOME", str(home))
        access = Access(keys=KeyFile(home / "ui" / "keys.json"), open_here=True, hosts=LOCAL_NAMES)
        made = WebServer(current_settings(as_of=DAY), folder, access, secure=False, audit=lambda **_: None)
        with listening(made) as url:
            yield url


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 420)])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_reads_well(browser: Any, address: str, path: str, scheme: str, width: int) -> None:
    """It fits the width, axe finds nothing, no script fails, nothing comes from elsewhere."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, told, asked = context.new_page(), [], []
    page.on("console", lambda said: told.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + path)
    assert Axe().run(page).response["violations"] == []
    if (pictures := os.environ.get("TONNAGE_PICTURES")) is not None:
        name = re.sub(r"\W+", "-", path).strip("-") or "home"
        page.screenshot(path=Path(pictures) / f"{name}-{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 1
    assert told == []
    assert all(url.startswith((address, "data:")) for url in asked)
    context.close()


def test_a_moved_slider_plans_anew(browser: Any, address: str) -> None:
    """By keyboard: the report and the address follow, the link opens the same, the twin has the value.

    `TONNAGE_WRITE_PICTURES=1` writes the picture of docs/ui.md.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(f"{address}/plan/bert-finetune")
    assert "67,000 sequences" in page.locator("#report").inner_text()
    page.locator("#s-samples").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    page.locator("#took").filter(has_text=re.compile("ms")).wait_for()
    samples = re.search(r"samples=(\d+)", page.url)
    assert samples is not None
    assert int(samples[1]) > 67_000
    shown = page.locator("#report").inner_text()
    assert f"{int(samples[1]):,} sequences" in shown
    if os.environ.get("TONNAGE_WRITE_PICTURES"):
        page.screenshot(path=Path(__file__).parents[2] / "docs" / "pictures" / "ui-plan.png")
    shared = page.locator("#share").get_attribute("href")
    page.goto(address + shared)
    assert f"{int(samples[1]):,} sequences" in page.locator("#report").inner_text()
    assert f"samples={samples[1]}" in page.locator("#twin").get_attribute("href")
    page.close()


def test_a_moved_weight_turns_the_answer(browser: Any, address: str) -> None:
    """By keyboard: the report and the address follow."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(address + COMPARED)
    before = page.locator("#report").inner_text()
    page.locator("#s-cost").focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.locator("#took").filter(has_text=re.compile("ms")).wait_for()
    assert "cost=9" in page.url
    shown = page.locator("#report").inner_text()
    assert shown != before
    assert "9, yours" in shown
    page.close()


def test_a_question_that_cannot_be_says_so(browser: Any, address: str, tmp_path: Path) -> None:
    """In words on a page, with the hint and a way home."""
    page = browser.new_page()
    page.goto(f"{address}/plan/bert-finetun")
    assert "did you mean 'bert-finetune'" in page.locator("main").inner_text()
    page.screenshot(path=tmp_path / "problem.png")
    page.get_by_role("link", name="Home").click()
    assert page.url == f"{address}/"
    page.close()
