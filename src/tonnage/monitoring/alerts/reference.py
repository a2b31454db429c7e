"""The reference of the watch file, rendered from the models that read it (docs/watch-file.md)."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from tonnage.monitoring.alerts import entries
from tonnage.monitoring.alerts.defaults import DEFAULT_RULES
from tonnage.workload.reference import render_sections

_SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("A rule", entries.AlertRuleEntry),
    ("`when`", entries.ConditionEntry),
    ("`do`", entries.ActionEntry),
    ("`post`", entries.PostEntry),
    ("A channel", entries.ChannelEntry),
    ("A page to scrape", entries.ScrapeEntry),
    ("`otlp`", entries.OtlpEntry),
)
_INTRODUCTION: Final = """\
# The watch file

<!-- Generated: python -m tonnage.monitoring.alerts.reference docs/watch-file.md -->

`watch.tonnage.yaml` says what `tonnage watch` looks at and what it does ([watch](watch.md)). Rules, channels and pages
are mappings by name. An unknown key is an error that names the file and the line. Durations carry their unit: `30s`,
`5m`, `24h`. Secrets are references, such as `env:NAME` or `aws:SECRET_ID` ([secrets.md](secrets.md)).
"""


def render_watch_reference() -> str:
    """Markdown: every section with key, type, unit, default, meaning, example; then the default rules."""
    intro = "A rule of the same name in the file takes the place of one. Each notifies every channel, too."
    defaults = f"## The default rules\n\n{intro}\n\n```yaml\n{DEFAULT_RULES}```"
    return render_sections(_INTRODUCTION, entries.WatchEntries, _SECTIONS, defaults)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    Path(sys.argv[1]).write_text(render_watch_reference(), encoding="utf-8")
