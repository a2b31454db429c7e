"""Write docs/gallery: the reports of examples/compare as a reader gets them, and pictures of them in a real browser.

Run: `make gallery` (needs Chromium). The reports are what `tonnage compare FILE --report` writes, with the clock
fixed to the day of the packaged prices.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tonnage.cli.running import run

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
AS_OF = "2026-11-20"
VIEWS = {"desktop": (1280, 1500), "phone": (390, 1500)}


def examples() -> list[Path]:
    """The compare files among the examples."""
    folder = ROOT / "examples" / "compare"
    return [path for path in sorted(folder.glob("*.tonnage.yaml")) if "kind: compare" in path.read_text()]


def write_reports(path: Path) -> Path:
    """HTML, Markdown, PDF and the two pages for the board of one example; the HTML file."""
    name = path.name.removesuffix(".tonnage.yaml")
    arguments = ["compare", str(path.relative_to(ROOT)), "--as-of", AS_OF, "-q"]
    for ending in ("html", "md", "pdf"):
        arguments += ["--report", str(GALLERY / f"{name}.{ending}")]
    arguments += ["--report", str(GALLERY / f"{name}-board.pdf")]
    if run(arguments):
        sys.exit(f"{path} gave no report")
    return GALLERY / f"{name}.html"


def picture(browser: Any, page_file: Path) -> None:
    """The top of a page at the width of a desktop and of a phone."""
    for view, (width, height) in VIEWS.items():
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(page_file.as_uri())
        page.screenshot(path=str(page_file.with_name(f"{page_file.stem}-{view}.png")))
        page.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        sys.exit("no Chromium on this machine")
    GALLERY.mkdir(exist_ok=True)
    pages = [write_reports(one) for one in examples()]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for page in pages:
            picture(browser, page)
        browser.close()


if __name__ == "__main__":
    main()
