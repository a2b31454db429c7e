"""Documents run: every console block and Python block of README.md and docs/ does what the page says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def refresh_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in refresh_module().PAGES])
def test_console_blocks_show_what_is_printed(page: str) -> None:
    """Each command exits as stated and prints the text shown (`make docs` rewrites the pages)."""
    text = (ROOT / page).read_text()
    assert "```console" in text
    assert refresh_module().refreshed(text) == text


def test_python_blocks_of_the_readme_run() -> None:
    """The README's Python runs as it stands, from the project's folder."""
    blocks = PYTHON.findall((ROOT / "README.md").read_text())
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("**/*.md") if ".venv" not in path.parts)
)
def test_links_between_documents_lead_somewhere(page: str) -> None:
    """Every relative link names a file that exists."""
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{page}: {target}"
