"""A comparison as Markdown: every section; of the drawings only the Gantt chart (figures are in tables)."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.comparison.comparing import Comparison
from tonnage.reports.blocks import Page
from tonnage.reports.comparison.content import build_sections, subtitle
from tonnage.reports.comparison.sections import Chart, Checks, CodePart, Part, Section, Subheading, Tree
from tonnage.reports.markdown import escape, render_markdown


def comparison_markdown(comparison: Comparison) -> str:
    """The whole report."""
    return sections_markdown(comparison, build_sections(comparison))


def sections_markdown(comparison: Comparison, sections: tuple[Section, ...]) -> str:
    """Some sections of it."""
    lines = [f"# {escape(comparison.request.title)}", "", escape(subtitle(comparison)), ""]
    for section in sections:
        lines += [f"## {escape(section.title)}", ""]
        for part in section.parts:
            lines += _part_lines(part)
    return "\n".join(lines).rstrip("\n") + "\n"


def _part_lines(part: Part) -> Iterator[str]:
    if isinstance(part, Chart):
        if not part.mermaid:
            return
        yield from _fenced(part.mermaid, "mermaid")
    elif isinstance(part, Subheading):
        yield f"### {escape(part.text)}"
    elif isinstance(part, Checks):
        yield from (f"- [ ] {escape(item)}" for item in part.items)
    elif isinstance(part, CodePart):
        yield from _fenced(part.text, part.language)
    elif isinstance(part, Tree):
        yield from _fenced(part.mermaid, "mermaid")
    else:
        body = render_markdown(Page(title="", blocks=(part,)))
        yield body.removeprefix("# \n\n").rstrip("\n")
    yield ""


def _fenced(text: str, language: str) -> Iterator[str]:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in text.replace("\n", " ").split(" ") if run and set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield text.rstrip("\n")
    yield fence
