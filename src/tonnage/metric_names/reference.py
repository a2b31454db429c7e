"""The reference of metric names, rendered from the registry (docs/metrics.md)."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names import GROUPS, Metric

_INTRODUCTION: Final = """\
# Metrics

<!-- Generated: python -m tonnage.metric_names.reference docs/metrics.md -->

The one registry of what Tonnage measures. The same names, kinds and meanings are on the pages for Prometheus of runs,
services, gateways and the [watch](watch.md), in its rules, and in what it sends by OTLP; `tonnage watch names` lists
them. Names follow OpenMetrics: base units at the end, `_total` for counters. A metric with the label `end` is a
prediction: `low` and `high` are the ends of its 80 % interval. What is not known is not shown.

GPUs are read by NVML, by `amd-smi` or `rocm-smi`, or from a Mac's I/O registry; a page of NVIDIA's DCGM exporter that
the watch scrapes appears under the same names. On a Mac power, temperature and clocks are for administrators alone, and
so not known. Energy of processors (RAPL) can be read by root alone on most systems.
"""


def render_metric_reference() -> str:
    """Markdown: a table a group."""
    return "\n".join([_INTRODUCTION, *(_section(title, group) for title, group in GROUPS.items())])


def _section(title: str, group: tuple[Metric, ...]) -> str:
    head = "| metric | kind | unit | labels | meaning | predicted by |\n| --- | --- | --- | --- | --- | --- |"
    rows = [
        f"| `{one.name}` | {one.kind} | {one.unit} | {', '.join(one.labels)} | {one.help} | "
        f"{f'`{one.predicted}`' if one.predicted else ''} |"
        for one in group
    ]
    return "\n".join([f"## {title}\n", head, *rows, ""])


if __name__ == "__main__":
    import sys
    from pathlib import Path

    Path(sys.argv[1]).write_text(render_metric_reference(), encoding="utf-8")
