"""docs/accuracy.md is what a fresh run writes, and the README repeats its figures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
FACTS = os.environ.get("TONNAGE_FACTS")
REPEATED = (  # a sentence of the README; for each of its figures the row of the page, and which of its figures
    (r"throughput of (\d+) published runs errs (\d+) % at the median and (\d+) % at the 90th percentile",
     (("training throughput", 0), ("training throughput", 3), ("training throughput", 4))),
    (r"peak memory of (\d+) runs ([\d.]+) and ([\d.]+) %",
     (("peak training memory", 0), ("peak training memory", 3), ("peak training memory", 4))),
    (r"medians of ([\d.]+) % for encoders, ([\d.]+) % for vision, ([\d.]+) % for decoder rates, ([\d.]+) % for TTFT "
     "and TPOT",
     (("encoder latency and throughput", 3), ("vision latency and throughput", 3), ("decoder throughput", 3),
      ("decoder TTFT and TPOT", 3))),
)  # fmt: skip


def headline_figures(page: str) -> dict[str, list[float]]:
    """By prediction: rows, fitted median and p90, left-out median and p90, of the page's first table."""
    table = page.partition("| prediction |")[2].partition("\n\n")[0]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: [float(cell.replace(",", "")) for cell in figures[:5]] for name, *figures in cells}


@pytest.mark.parametrize(("sentence", "rows"), REPEATED, ids=["throughput", "memory", "inference"])
def test_the_readme_repeats_the_page(sentence: str, rows: tuple[tuple[str, int], ...]) -> None:
    """Each headline figure of the README is the page's, rounded where it has no decimals."""
    said = re.search(sentence, " ".join((ROOT / "README.md").read_text(encoding="utf-8").split()))
    assert said, "the README no longer has this sentence: adapt the pattern to the new one"
    figures = headline_figures(PAGE.read_text(encoding="utf-8"))
    for one, (name, place) in zip(said.groups(), rows, strict=True):
        assert float(one) == (figures[name][place] if "." in one else round(figures[name][place]))


@pytest.mark.slow
@pytest.mark.skipif(FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_the_page_is_what_a_run_writes(tmp_path: Path) -> None:
    """`make accuracy` as of the page's own day writes the page, to the byte."""
    page = PAGE.read_text(encoding="utf-8")
    day = re.search(r"^- calibrated on (\S+)$", page, re.MULTILINE)
    assert day
    command = [sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), "--as-of", day[1], "--out"]
    subprocess.run([*command, str(tmp_path / "page.md")], check=True, cwd=ROOT)
    assert (tmp_path / "page.md").read_text(encoding="utf-8").splitlines() == page.splitlines()
