"""Documents run: every console block and Python block of README.md and docs/ does what the page says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import tonnage

ROOT = Path(__file__).parent.parent
NOT_OURS = {".venv", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "site"}
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@cache  # pages show the same commands: what one test has run, the next need not
def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in script("refresh").PAGES])
def test_console_blocks_show_what_is_printed(page: str) -> None:
    """Each command exits as stated and prints the text shown (`make docs` rewrites the pages)."""
    text = (ROOT / page).read_text()
    assert "```console" in text
    assert script("refresh").refreshed(text) == text


def test_python_blocks_of_the_readme_run() -> None:
    """The README's Python runs as it stands, from the project's folder."""
    blocks = PYTHON.findall((ROOT / "README.md").read_text())
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.heavy
def test_python_blocks_of_the_api_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/python.md run one after the other, from the project's folder, as one session."""
    blocks = PYTHON.findall((ROOT / "docs" / "python.md").read_text())
    assert blocks
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TONNAGE_AS_OF", "2026-11-20T00:00Z")
    session: dict[str, object] = {}
    for block in blocks:
        exec(block.replace("FOLDER", str(tmp_path)), session)


def test_every_verb_is_on_the_api_page() -> None:
    """docs/python.md names every public name of the package."""
    page = (ROOT / "docs" / "python.md").read_text()
    missing = [name for name in tonnage.__all__ if name != "__version__" and f"`{name}" not in page]
    assert not missing


def pages_of_the_project() -> list[str]:
    """Every Markdown file but those of tools: an environment holds tens of thousands of folders."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        found += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in files if name.endswith(".md")]
    return sorted(found)


@pytest.mark.parametrize("page", pages_of_the_project())
def test_links_between_documents_lead_somewhere(page: str) -> None:
    """Every relative link names a file that exists."""
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{page}: {target}"


def test_the_picture_shows_what_is_printed() -> None:
    """docs/pictures/plan.svg is what `tonnage plan` prints today (`make docs` draws it), without a font of the web."""
    picture = script("picture")
    drawn = picture.draw()
    assert picture.PICTURE.read_text(encoding="utf-8") == drawn
    assert "url(http" not in drawn.replace('"', "")


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs-material is not installed")
def test_the_site_builds(tmp_path: Path) -> None:
    """Strictly: no page without a place, no link that leads nowhere; and pages load nothing from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "pictures/plan.svg" in page
    assert not re.findall(r"<(?:script|img)[^>]*src=\"?https?://|<link[^>]*stylesheet[^>]*https?://", page)
