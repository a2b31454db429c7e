"""The comparison reports in a real browser: nothing overflows, overlaps, is fetched or fails an accessibility rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tonnage.cli.running import run

pytestmark = pytest.mark.browser
FOLDER = Path(__file__).parents[2] / "examples" / "compare"
EXAMPLES = [path for path in sorted(FOLDER.glob("*.tonnage.yaml")) if "kind: compare" in path.read_text()]
WIDTHS = (1280, 390)  # a desktop, a phone
OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  const boxes = texts.map(t => [t.textContent.trim(), t.getBoundingClientRect()]).filter(b => b[1].width);
  const bad = [];
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (x > 2 && y > 3) bad.push(`${a} | ${b}`);
  }));
  return bad;
})"""
OVERFLOW = """() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return wide > 1 ? wide : 0;
}"""
EMPTY = """() => [...document.querySelectorAll('svg[role=img], figure svg')].filter(
  svg => svg.getBoundingClientRect().height < 40 || !svg.querySelector('path, rect, line, circle')
).map(svg => svg.getAttribute('aria-label') || svg.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.name.split(".")[0])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("report") / "report.html"
    assert run(["compare", str(request.param), "--report", str(written), "--as-of", "2026-11-20", "-q"]) == 0
    return written


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_reads_well(browser: Any, report: Path, width: int, scheme: str) -> None:
    """It fits the width, no label stands on another, no chart is empty, nothing is fetched, no script fails."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(EMPTY) == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser: Any, report: Path, scheme: str) -> None:
    """The accessibility rules of axe-core, as the browser renders the page."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page.goto(report.as_uri())
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in {"serious", "critical"}]
    assert [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:120]}" for one in serious] == []
    page.close()
