"""`plan --portfolio`, `breakeven` and `rightsize` as a user types them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tonnage.reports.rendering import FORMATS

from .conftest import Forms, Run

EXAMPLES = Path(__file__).parents[2] / "examples"
GPT2 = str(EXAMPLES / "serve-gpt2-realtime.tonnage.yaml")
BATCH = str(EXAMPLES / "batch-10k-per-hour.tonnage.yaml")
BERT = str(EXAMPLES / "bert-finetune.tonnage.yaml")
DAY = ("--as-of", "2026-11-20")
PRICES = ("--input-usd", "0.02", "--output-usd", "0.08")


@pytest.mark.parametrize(
    "line",
    [
        ("plan", "--portfolio", str(EXAMPLES / "portfolio.yaml"), *DAY),
        ("breakeven", GPT2, *DAY, *PRICES),
        ("breakeven", GPT2, *DAY),
        ("breakeven", BATCH, *DAY, *PRICES, "--batch-discount", "50"),
        ("rightsize", str(EXAMPLES / "usage.csv"), *DAY),
    ],
    ids=["portfolio", "service", "no-prices", "batch", "rightsize"],
)
def test_every_form(forms: Forms, line: tuple[str, ...]) -> None:
    """Each prints in every form, nothing on stderr; JSON and CSV parse, tables keep to the width, docs/json.md has a
    section for each document and names each of its top-level keys."""
    shown = forms(*line)
    document = json.loads(shown["json"])
    page = (EXAMPLES.parent / "docs" / "json.md").read_text()
    described = page.partition(f"\n## {document['schema']}\n")[2].partition("\n## ")[0]
    assert document["schema"].startswith("tonnage/")
    assert [key for key in document if f"`{key}`" not in described] == []
    rows = list(csv.reader(io.StringIO(shown["csv"])))
    assert len(rows) > 1
    assert len({len(row) for row in rows}) == 1
    assert max(len(row) for row in shown["table"].splitlines()) <= 120


def test_the_form_asked_for_is_printed(inside: Run) -> None:
    """`-o` reaches the verbs that are not plans of one file."""
    usage = ("rightsize", str(EXAMPLES / "usage.csv"), *DAY)
    pages = [inside(*usage, "-o", form).stdout for form in FORMATS]
    assert len(set(pages)) == len(FORMATS)
    assert json.loads(pages[FORMATS.index("json")])["schema"].startswith("tonnage/")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("plan",), "--portfolio FILE"),
        (("plan", "--portfolio", "x.yaml", "--rank", "time"), "--rank"),
        (("plan", BERT, "--portfolio", "x.yaml"), "one workload"),
        (("plan", "--portfolio", "none.yaml"), "none.yaml"),
        (("breakeven", GPT2, "--input-usd", "1"), "--output-usd"),
        (("breakeven", GPT2, "--cached-input-usd", "1"), "without a price"),
        (("breakeven", GPT2, "--against", "none.csv"), "none.csv"),
        (("breakeven", GPT2, "--hourly", "1,2"), "expected 24"),
        (("breakeven", GPT2, "--hourly", "a,b"), "24 numbers"),
        (("breakeven", GPT2, "--peak-to-trough", "2", "--hourly", "1,2"), "two shapes"),
        (("breakeven", GPT2, "--warm-up", "5"), "--warm-up"),
        (("breakeven", GPT2, "--min", "4", "--max", "2"), "fleet of 4 to 2"),
        (("breakeven", GPT2, "--input-usd", "-1", "--output-usd", "1"), "--input-usd"),
        (("breakeven", BERT, *PRICES), "not a service"),
        (("rightsize", "none.csv"), "none.csv"),
        (("rightsize", str(EXAMPLES / "usage.csv"), "--headroom", "nan"), "headroom"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_bad_usage_ends_with_two(inside: Run, line: tuple[str, ...], told: str) -> None:
    """Exit 2, nothing on stdout, the reason on stderr, no traceback."""
    done = inside(*line)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_table_of_prices(inside: Run, tmp_path: Path) -> None:
    """Rows are APIs; provisioned units are one more; a bad cell names line and column."""
    path = tmp_path / "prices.csv"
    head = "name,usd_per_million_input,usd_per_million_output,usd_per_unit_hour,unit_tokens_per_minute,read_on\n"
    path.write_text(head + "small,0.02,0.08,,,2026-11-01\nlarge,2,8,10,500000,\n")
    done = inside("breakeven", GPT2, *DAY, "--against", str(path), "-o", "json")
    apis = json.loads(done.stdout)["apis"]
    assert [api["name"] for api in apis] == ["small", "large", "large, provisioned"]
    assert apis[0]["read_on"] == "2026-11-01"
    path.write_text(head + "small,0.02,-0.08,,,\n")
    done = inside("breakeven", GPT2, "--against", str(path))
    assert done.returncode == 2
    assert f"{path}:2: `usd_per_million_output`" in done.stderr


def test_nothing_fits_is_three(inside: Run, tmp_path: Path) -> None:
    """No machine that keeps the promise, no portfolio that holds, no batch in time: exit 3, with a report."""
    serve = tmp_path / "s.yaml"
    serve.write_text(Path(GPT2).read_text().replace("500ms", "1ms"))
    done = inside("breakeven", str(serve), *DAY)
    assert done.returncode == 3
    assert "Nothing fits" in done.stdout
    together = tmp_path / "p.yaml"
    together.write_text(f"workloads: [{{file: {BERT}, runs_per_month: 40}}]\nbudget_usd: 0.01\n")
    done = inside("plan", "--portfolio", str(together), *DAY)
    assert done.returncode == 3
    assert "must be" in done.stdout
    assert "budget" in done.stderr


def test_more_of_everything_costs_more(inside: Run) -> None:
    """p99, bursts, spare machines and a steeper day never lower the cost of the month."""

    def cost(*more: str) -> float:
        done = inside("breakeven", GPT2, *DAY, "--spare", "1", *more, "-o", "json")
        return float(json.loads(done.stdout)["cost_usd"]["value"])

    base = cost()
    for more in (("--p99",), ("--variation", "3"), ("--spare", "4"), ("--fixed", "--peak-to-trough", "6")):
        assert cost(*more) >= base * 0.999, more


def test_a_front_end_that_binds_is_said(inside: Run) -> None:
    """Many short requests of a small model: the same replicas on any GPU, and the notes say why."""
    assert "front end, not the GPU, limits a replica" in " ".join(inside("plan", GPT2, *DAY).stdout.split())
    assert "front end" not in inside("plan", BATCH, *DAY).stdout
