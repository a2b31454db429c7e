"""The documentation site places every page, and the map of the code names what exists."""

from __future__ import annotations

import doctest
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MAP = (DOCS / "find-your-way.md").read_text(encoding="utf-8")
SETTINGS: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from named(part)


def test_the_navigation_names_every_page_once() -> None:
    """Every page of docs/ but the gallery's reports, and the pages at the root of the repository."""
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "gallery"}
    pages = sorted(written | {"gallery/README.md"} | set(script("site_hooks").ROOT_PAGES.values()))
    assert sorted(named(SETTINGS["nav"])) == pages


def test_the_navigation_has_the_four_kinds() -> None:
    """Tutorial, how-to, reference and explanation, after the first page."""
    kinds = [name for part in SETTINGS["nav"] for name in part]
    assert kinds == ["Home", "Tutorial", "How-to guides", "Reference", "Explanation"]


def test_the_theme_asks_the_network_for_nothing() -> None:
    """No web fonts; no address of a repository, which a browser would ask for its stars."""
    assert SETTINGS["theme"]["font"] is False
    assert "repo_url" not in SETTINGS
    assert SETTINGS["strict"] is True


@pytest.mark.parametrize("name", ["site_hooks", "refresh"])
def test_examples_of_the_scripts(name: str) -> None:
    """The examples in their docstrings are true."""
    outcome = doctest.testmod(script(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


PATHS = sorted(set(re.findall(r"`((?:src|tests)/[^`]+)`", MAP)))
ROWS = re.findall(r"^\|[^|]+\| `(src/[^`]+\.py)`[^|]*\| (`.+`) \|$", MAP, re.MULTILINE)


@pytest.mark.parametrize("path", PATHS)
def test_the_map_names_paths_that_exist(path: str) -> None:
    """Each file and folder of docs/find-your-way.md is there."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "names"), ROWS, ids=[names for _, names in ROWS])
def test_the_map_names_what_a_file_defines(path: str, names: str) -> None:
    """Each function or class of docs/find-your-way.md is defined in the file beside it."""
    source = (ROOT / path).read_text(encoding="utf-8")
    for name in re.findall(r"`(\w+)`", names):
        assert re.search(rf"^(?:def|class) {name}\b", source, re.MULTILINE), f"{path} does not define {name}"


def test_the_map_answers_four_questions() -> None:
    """Prices, memory, refusals, providers; enough rows that the tests above hold something."""
    asked = re.findall(r"^## (.+)$", MAP, re.MULTILINE)
    assert [word for word in ("price", "memory", "refusal", "provider") if not any(word in one for one in asked)] == []
    assert len(ROWS) >= 10
