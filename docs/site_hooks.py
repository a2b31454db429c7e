"""Hooks of the documentation site (`mkdocs.yml`): pages that are written for GitHub become pages of the site.

Three differences are bridged. README.md and its neighbours lie outside docs/; links to files outside the site lead to
the repository; and Python-Markdown, other than GitHub, wants an empty line before a list or a table and four spaces
inside a list item.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "SCOPE.md": "scope.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"\]\((?!https?://|mailto:|#)(?P<target>[^)#\s]+)")
FENCE = re.compile(r"^\s*```")
INSIDE_ITEM = re.compile(r" {4}\S")
BLOCK_START = re.compile(r"- |\d+\. |\|")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the root of the repository."""
    from mkdocs.structure.files import File

    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page's text with links and blocks as the site needs them."""
    known = {file.src_uri for file in files if not file.inclusion.is_excluded()}
    linked = outside_code(markdown, lambda line: site_links(line, page.file.src_uri, known, config.extra["repository"]))
    return separated_blocks(outside_code(linked, widened))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with `change` applied to each line that is in no code block."""
    lines, in_code = [], False
    for line in text.split("\n"):
        fence = bool(FENCE.match(line))
        lines.append(line if in_code or fence else change(line))
        in_code ^= fence
    return "\n".join(lines)


def site_links(line: str, page: str, known: Container[str], repository: str) -> str:
    """The line with each relative link leading to a page or file of the site, or else to the repository.

    >>> site_links("[a](docs/run.md) [b](examples/ci/x.yml)", "index.md", {"run.md"}, "https://git.example/t")
    '[a](run.md) [b](https://git.example/t/blob/main/examples/ci/x.yml)'
    >>> site_links("[c](../../SCOPE.md)", "decisions/x.md", {"scope.md"}, "https://git.example/t")
    '[c](../scope.md)'
    """
    sources = {site: source for source, site in ROOT_PAGES.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def rewritten(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match["target"]))
        target = ROOT_PAGES.get(path, path.removeprefix("docs/"))
        if (path in ROOT_PAGES or path.startswith("docs/")) and target in known:
            return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({repository.rstrip('/')}/{kind}/main/{path}"

    return LINK.sub(rewritten, line)


def widened(line: str) -> str:
    """The line as Python-Markdown wants what is inside a list item, and a folded part whose inside is Markdown.

    >>> widened("  - nested"), widened("<details><summary>rows</summary>")
    ('    - nested', '<details markdown="1"><summary>rows</summary>')
    """
    return re.sub(r"^ {2,3}(?=\S)", "    ", line).replace("<details>", '<details markdown="1">')


def separated_blocks(text: str) -> str:
    r"""The text with an empty line before each list and table that follows a paragraph, inside a list item too.

    >>> separated_blocks("Two things:\n- one,\n  still one\n- two\n")
    'Two things:\n\n- one,\n  still one\n- two\n'
    """
    above = ""  # what the line above is: a paragraph, an item, the text or a paragraph of one, an item inside an item

    def separated(line: str) -> str:
        nonlocal above
        outer, inner = bool(BLOCK_START.match(line)), line.startswith("    ") and bool(BLOCK_START.match(line[4:]))
        opens = (outer and above in ("paragraph", "paragraph of item", "inner item")) or (
            inner and above in ("text of item", "paragraph of item")
        )
        if not line.strip() or line.startswith("#"):
            above = ""
        elif outer or inner:
            above = "inner item" if inner else "item"
        elif not line.startswith(" "):
            above = "paragraph"
        elif INSIDE_ITEM.match(line) and above != "inner item":
            above = "text of item" if above in ("item", "text of item") else "paragraph of item"
        return f"\n{line}" if opens else line

    return outside_code(text, separated)
