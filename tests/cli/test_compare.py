"""`tonnage compare`: the examples, files written whole, bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from .conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples" / "compare"
QUICKEST = "h2o-vs-pytorch.tonnage.yaml"  # the pages of all are made by tests/comparison/test_one_answer.py
FILES = [path.name for path in EXAMPLES.glob("*.tonnage.yaml") if "kind: compare" in path.read_text()]
FILES.sort(key=lambda name: (name == QUICKEST, name))
DAY = ("--as-of", "2026-11-20")


@pytest.mark.parametrize("name", [QUICKEST, *(pytest.param(one, marks=pytest.mark.slow) for one in FILES[:-1])])
def test_examples_run(inside: Run, tmp_path: Path, name: str) -> None:
    """Each example gives its page and its data, and no other file."""
    done = inside("compare", str(EXAMPLES / name), *DAY, "--report", "one.html", "--report", "one.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    page = (tmp_path / "one.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert len(page) < 2_000_000
    found = json.loads((tmp_path / "one.json").read_text())
    assert found["things"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.html", "one.json"]


def test_a_page_repeats_to_the_byte(inside: Run, tmp_path: Path) -> None:
    """Asked twice, the same page."""
    arguments = ("compare", str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml"), *DAY, "--report", "one.html")
    assert inside(*arguments).returncode == 0
    page = (tmp_path / "one.html").read_bytes()
    assert inside(*arguments).returncode == 0
    assert (tmp_path / "one.html").read_bytes() == page


@pytest.mark.slow
def test_a_pdf_repeats_to_the_byte(tonnage: Run, tmp_path: Path) -> None:
    """Written by two processes in two time zones: the same bytes, whole."""
    file = str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml")
    for zone in ("UTC", "Asia/Kathmandu"):
        done = tonnage("compare", file, *DAY, "--report", f"{zone[:3]}.pdf", env={"TZ": zone})
        assert done.returncode == 0, done.stderr
    first, second = (tmp_path / "UTC.pdf").read_bytes(), (tmp_path / "Asi.pdf").read_bytes()
    assert first.startswith(b"%PDF-")
    assert first.rstrip().endswith(b"%%EOF")
    assert first == second


def test_the_migration_is_written(inside: Run, tmp_path: Path) -> None:
    """As CSV, calendar and check-boxes."""
    file = str(EXAMPLES / "gcp-h100-vs-databricks.tonnage.yaml")
    done = inside(
        "compare", file, *DAY, *(part for kind in ("csv", "ics", "md") for part in ("--migration", f"m.{kind}"))
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.ics").read_bytes().startswith(b"BEGIN:VCALENDAR\r\n")
    assert (tmp_path / "m.csv").read_text().startswith("id,phase,task")
    assert "- [ ] " in (tmp_path / "m.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to compare"),
        (("good.yaml", "--check", "doc.md"), "--check is another task"),
        (("good.yaml", "--strict"), "go with --check"),
        (("nowhere.yaml",), "no such file"),
        (("good.yaml", "--report", "report.docx"), "cannot tell the form"),
        (("good.yaml", "--migration", "plan.html"), "cannot tell the form"),
        (("good.yaml", "--migration", "plan.csv"), "has no `migration`"),
        (("good.yaml", "--report", "report.md", "--migration", "plan.csv"), "has no `migration`"),
        (("good.yaml", "--profiles", "nowhere"), "no such folder of profiles"),
        (("bad.yaml",), "`weights.cost`: found -1"),
    ],
)
def test_bad_input(inside: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Exit 2 with a hint, and nothing is written."""
    text = (
        "kind: compare\ntitle: Two\ncompare: [databricks, sagemaker]\nrules: computed-cost\n"
        f"workloads: [{{file: '{EXAMPLES.parent / 'bert-finetune.tonnage.yaml'}', jobs_per_month: 1}}]\n"
    )
    (tmp_path / "good.yaml").write_text(text)
    (tmp_path / "bad.yaml").write_text(text + "weights: {cost: -1}\n")
    done = inside("compare", *arguments, *DAY)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.yaml", "good.yaml"]


def test_a_missing_extra_is_said_before_anything_is_written(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the libraries of the charts: exit 2 with what to install, no file; data and tables need none of them."""
    monkeypatch.setitem(sys.modules, "altair", None)
    file = str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml")
    for name in ("one.html", "one.pdf"):
        done = inside("compare", file, *DAY, "--report", "one.json", "--report", name)
        assert done.returncode == 2
        assert "pip install 'tonnage[report]'" in done.stderr
        assert list(tmp_path.iterdir()) == []
    done = inside("compare", file, *DAY, "--report", "one.json", "--report", "one.md", "-o", "table")
    assert done.returncode == 0, done.stderr


def test_a_missing_folder_is_told_before_any_work(inside: Run, tmp_path: Path) -> None:
    """Bad input, with the folder's name; nothing is written, not even the other reports."""
    file = str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml")
    done = inside("compare", file, *DAY, "--report", "here.html", "--report", "nowhere/report.html")
    assert done.returncode == 2
    assert "there is no folder nowhere" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "json"])
def test_an_old_report_survives_what_cannot_be_written(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Ended midway, a report is the old one, whole, and nothing is left beside it."""
    report = tmp_path / f"report.{suffix}"
    report.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml")
    done = inside("compare", file, *DAY, "--report", report.name)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert report.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [report.name]


HOSTILE = "=HYPERLINK(1) <script>alert(1)</script> | `x` [a](javascript:b)"


def test_marks_in_names_are_text(inside: Run, tmp_path: Path) -> None:
    """HTML, Markdown, formulas of spreadsheets: in titles, values, sources and reasons they are text in every form."""
    (tmp_path / "own").mkdir()
    quoted = repr(HOSTILE)
    (tmp_path / "own" / "e.yaml").write_text(
        f"name: e\ntitle: {quoted}\nabout: {quoted}\nplan: {{platforms: [vm]}}\n"
        f"sources: {{s: {{title: {quoted}, url: 'https://e.org/\"><script>', read_on: 2026-11-01}}}}\n"
        f"aspects: {{hardware: {{value: {quoted}, sources: [s], score: 3, because: {quoted}}}}}\n"
        f"risks: [{quoted}]\nsuits: [{quoted}]\nlevers: [{quoted}]\npractices: [{quoted}]\ntry_it: [{quoted}]\n"
    )
    workload = EXAMPLES.parent / "gbm-5m-rows.tonnage.yaml"
    (tmp_path / "c.yaml").write_text(
        f"kind: compare\ntitle: {quoted}\ncompare: [pytorch, {{name: e, title: {quoted}}}]\nprofiles: [own]\n"
        f"workloads: [{{file: '{workload}', jobs_per_month: 1}}]\nmigration: {{from: pytorch, to: e}}\n"
    )
    reports = [f"r.{form}" for form in ("html", "md", "csv", "json")]
    wanted = [part for report in reports for part in ("--report", report)]
    done = inside("compare", "c.yaml", *DAY, *wanted, "--migration", "m.csv", "--migration", "m.md")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert "<script" not in page
    assert 'href="javascript' not in page
    for name in ("r.csv", "m.csv"):
        rows = list(csv.reader(io.StringIO((tmp_path / name).read_text())))
        assert all(not cell.startswith(("=", "@", "+")) for row in rows for cell in row)
    assert "'=HYPERLINK" in (tmp_path / "r.csv").read_text()
    for name in ("r.md", "m.md"):
        prose = re.sub(r"^(`{3,}).*?^\1$", "", (tmp_path / name).read_text(), flags=re.DOTALL | re.MULTILINE)
        assert "<script" not in prose
        assert not re.search(r"(?<!\\)\]\(javascript", prose)
    assert json.loads((tmp_path / "r.json").read_text())["title"] == HOSTILE


def test_a_compare_file_is_explained(inside: Run, tmp_path: Path) -> None:
    """By its decision, not by a plan; what belongs to a plan is refused, a broken file told."""
    file = str(EXAMPLES / "h2o-vs-pytorch.tonnage.yaml")
    done = inside("explain", file, *DAY)
    assert done.returncode == 0, done.stderr
    assert "The whole tree" in done.stdout
    wrong = inside("explain", file, "--gpu", "H100")
    assert wrong.returncode == 2
    assert "--gpu is about a plan" in wrong.stderr
    for text in ("kind: [compare", "kind: compare\ntitle: x\n", ""):
        (tmp_path / "broken.tonnage.yaml").write_text(text)
        assert inside("explain", "broken.tonnage.yaml").returncode == 2


def test_profiles_of_ones_own(inside: Run, tmp_path: Path) -> None:
    """A profile in a folder is compared without code."""
    (tmp_path / "own").mkdir()
    cell = {"value": "Eight H100", "sources": ["us"], "score": 3, "because": "a short list"}
    (tmp_path / "own" / "ours.yaml").write_text(
        "name: ours\ntitle: Our cluster\nabout: Our own.\nplan: {computed: false, why_not: no prices}\n"
        "sources: {us: {title: Us, judgement: true}}\n" + json.dumps({"aspects": {"hardware": cell}})[1:-1]
    )
    (tmp_path / "c.yaml").write_text(
        "kind: compare\ntitle: Two\ncompare: [databricks, ours]\n"
        f"workloads: [{{file: '{EXAMPLES.parent / 'bert-finetune.tonnage.yaml'}', jobs_per_month: 1}}]\n"
    )
    done = inside("compare", "c.yaml", "--profiles", "own", *DAY, "-o", "md")
    assert done.returncode == 0, done.stderr
    assert "Eight H100" in done.stdout
    assert "not computed: no prices" in done.stdout
