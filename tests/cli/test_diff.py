"""`tonnage diff`: what a change costs a month, of files, against git, of prices; and the workflow for pull requests."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tonnage import diff
from tonnage.errors import InputError

from .conftest import SMALL, Run

ROOT = Path(__file__).parents[2]
BERT = ROOT / "examples" / "bert-finetune.tonnage.yaml"
SERVE = ROOT / "examples" / "serve-llama-7b-realtime.tonnage.yaml"
SNAPSHOT = ROOT / "src" / "tonnage" / "catalog" / "data" / "snapshots" / "2026-11-20"
DAY = ("--as-of", "2026-11-20")


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one committed workload; the test's home and folder are elsewhere."""
    folder = tmp_path / "repository"
    (folder / "work").mkdir(parents=True)
    git(folder, "init", "-q")
    shutil.copy(BERT, folder / "work" / "bert.tonnage.yaml")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def changed(path: Path, *swaps: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_two_files(inside: Run, tmp_path: Path) -> None:
    """The change is what two plans differ by, and the keys' shares add up to it."""
    other = tmp_path / "more.tonnage.yaml"
    shutil.copy(BERT, other)
    changed(other, ("67_000", "670_000"), ("epochs: 3", "epochs: 5"), ("deadline: 8h", "deadline: 2h"))
    done = inside("diff", str(BERT), str(other), "--runs", "4", *DAY, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (work,) = json.loads(done.stdout)["workloads"]
    costs = [
        json.loads(inside("plan", str(file), *DAY, "-o", "json").stdout)["options"][0]["cost_usd"]["value"]
        for file in (BERT, other)
    ]
    assert work["change_usd_per_month"] == pytest.approx(4 * (costs[1] - costs[0]), rel=1e-3)
    assert [step["keys"] for step in work["steps"]] == [["data.samples"], ["data.epochs"], ["constraints.deadline"]]
    shares = [step["change_usd_per_month"] for step in work["steps"]]
    assert sum(shares) == pytest.approx(work["change_usd_per_month"], rel=1e-3)
    assert all(share > 0 for share in shares[:2])


def test_no_change_is_said(inside: Run) -> None:
    """A file beside itself: no change, no step."""
    done = inside("diff", str(SERVE), str(SERVE), *DAY)
    assert "no change" in done.stdout
    assert "the same" in done.stdout


def test_against_a_revision(inside: Run, repository: Path) -> None:
    """The file as committed beside the file as it is; a new one is added, a deleted one removed."""
    file = repository / "work" / "bert.tonnage.yaml"
    changed(file, ("epochs: 3", "epochs: 30"))
    new = repository / "work" / "new.tonnage.yaml"
    shutil.copy(SERVE, new)
    done = inside("diff", str(file), str(new), "--against", "HEAD", *DAY, "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    grown, added = document["workloads"]
    assert [one["key"] for one in grown["changed_keys"]] == ["data.epochs"]
    assert (added["before"]["lacks"], added["after"]["lacks"]) == ("no file", None)
    total = document["after_usd_per_month"] - document["before_usd_per_month"]
    assert total == pytest.approx(grown["change_usd_per_month"] + added["change_usd_per_month"], rel=1e-3)
    shutil.rmtree(repository / "work")
    gone = json.loads(inside("diff", str(file), "--against", "HEAD", *DAY, "-o", "json").stdout)["workloads"][0]
    assert gone["after"]["lacks"] == "no file"
    assert gone["change_usd_per_month"] == -grown["before"]["usd_per_month"]["value"]


def test_two_snapshots(inside: Run, tmp_path: Path) -> None:
    """Under prices twice as high a service costs twice as much."""
    dearer = tmp_path / "home" / "snapshots" / "2026-11-19-twice"
    shutil.copytree(SNAPSHOT, dearer)
    meta = dearer / "snapshot.toml"
    meta.write_text(meta.read_text().replace("2026-11-20", "2026-11-19"))
    offers = dearer / "offers.csv"
    with offers.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["usd_per_instance_hour"] = str(2 * float(row["usd_per_instance_hour"]))
    with offers.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = inside("diff", str(SERVE), "--snapshot-before", "2026-11-19-twice", *DAY, "-o", "json")
    assert done.returncode == 0, done.stderr
    (work,) = json.loads(done.stdout)["workloads"]
    assert work["change_percent"] == pytest.approx(-50.0, abs=0.1)
    assert work["changed_keys"] == []


@pytest.mark.parametrize(
    ("limit", "code"), [("0.1", 4), ("1%", 4), ("0,125", 4), ("$0.10", 4), ("1000", 0), ("100000 %", 0)]
)
def test_fail_above(inside: Run, repository: Path, limit: str, code: int) -> None:
    """Exit 4 above the limit, in dollars or as a share; the report is printed all the same."""
    file = repository / "work" / "bert.tonnage.yaml"
    changed(file, ("67_000", "6_700_000"), ("deadline: 8h", "deadline: 80h"))
    priced = ("--against", "main", "--catalog", SMALL, *DAY)
    done = inside("diff", str(file), *priced, "--fail-above", limit, "-o", "md")
    assert done.returncode == code, done.stderr
    assert "| data.samples |" in done.stdout
    assert ("costs more than" in done.stderr) == (code == 4)


def test_nothing_fits_any_more(inside: Run, tmp_path: Path) -> None:
    """What fitted and does not now is exit 3, with the report."""
    other = tmp_path / "tight.tonnage.yaml"
    shutil.copy(BERT, other)
    changed(other, ("67_000", "670_000_000"), ("deadline: 8h", "deadline: 20m"))
    done = inside("diff", str(BERT), str(other), *DAY)
    assert done.returncode == 3
    assert "nothing fits" in done.stdout
    assert "after the change" in done.stderr
    still = inside("diff", str(other), str(other), *DAY)
    assert (still.returncode, still.stderr) == (0, "")
    assert "nothing fits" in still.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((str(BERT),), "found one file, expected two"),
        ((str(BERT), "--against", "no-such-branch"), "no git revision 'no-such-branch'"),
        ((str(BERT), "--against=--help"), "no git revision '--help'"),
        ((str(BERT), str(SERVE), "--fail-above", "lots"), "found 'lots'"),
        ((str(BERT), str(SERVE), "--fail-above", "1,000"), "hint: 1000, or 1.000"),
        ((str(BERT), str(SERVE), "--runs", "0"), "found 0.0 runs a month"),
        ((str(BERT), str(SERVE), "--runs", "nan"), "runs a month"),
        ((str(BERT), "--snapshot-after", "2026-11-20"), "--snapshot-after without"),
        ((str(BERT), "--snapshot-before", "2020-01-01"), "no snapshot '2020-01-01'"),
        (("missing.tonnage.yaml", str(SERVE)), "no such file"),
        (("missing.tonnage.yaml", "--against", "HEAD"), "neither here nor at HEAD"),
    ],
)
def test_bad_input(inside: Run, repository: Path, arguments: tuple[str, ...], said: str) -> None:
    """What cannot be asked is exit 2, with what to do."""
    line = tuple(str(repository / "work" / one) if one.startswith("missing") else one for one in arguments)
    line = tuple(str(repository / "work" / "bert.tonnage.yaml") if one == str(BERT) else one for one in line)
    done = inside("diff", *line, *DAY)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "hint: " in done.stderr


def test_outside_a_repository(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a repository git's own words are passed on."""
    file = tmp_path / "bert.tonnage.yaml"
    shutil.copy(BERT, file)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    done = inside("diff", str(file), "--against", "HEAD", *DAY)
    assert done.returncode == 2
    assert "not in a git repository" in done.stderr


def test_the_workflow_comments_what_a_change_costs(repository: Path, environment: dict[str, str]) -> None:
    """The step of examples/ci, run by bash in a repository with a branch: a comment, and the exit code."""
    file = repository / "work" / "bert.tonnage.yaml"
    git(repository, "checkout", "-qb", "change")
    changed(file, ("67_000", "6_700_000"), ("deadline: 8h", "deadline: 80h"))
    git(repository, "commit", "-qam", "more rows")
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "tonnage-diff.yml").read_text())
    (step,) = [one for one in workflow["jobs"]["diff"]["steps"] if one.get("id") == "plan"]
    tools = repository.parent / "bin"
    tools.mkdir()
    (tools / "tonnage").write_text(f'#!/bin/sh\nexec {sys.executable} -m tonnage "$@"\n')
    (tools / "tonnage").chmod(0o755)
    summary, output = repository.parent / "summary.md", repository.parent / "output"
    given = {"PATH": os.pathsep.join([str(tools), os.environ["PATH"]])}
    given |= {"BASE": "main", "FAIL_ABOVE": "0.1", "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=repository, check=True, env=environment | given)
    assert output.read_text() == "code=4\n"
    comment = summary.read_text()
    assert comment == (repository / "cost.md").read_text()
    assert "| data.samples | 67000 | 6700000 |" in comment
    assert "the change costs more than 0.10 USD a month" in comment


def test_an_instant_is_held_against_now_as_in_a_plan(inside: Run, tmp_path: Path) -> None:
    """A deadline ten minutes away is refused by both: the day's midnight would make it hours."""
    soon = datetime.now(UTC) + timedelta(minutes=4)
    file = tmp_path / "soon.tonnage.yaml"
    shutil.copy(BERT, file)
    changed(file, ("deadline: 8h", f'deadline: "{soon:%Y-%m-%dT%H:%MZ}"'))
    planned, compared = inside("plan", str(file)), inside("diff", str(file), str(file))
    assert planned.returncode == compared.returncode == 2
    assert "machine starts in" in planned.stderr
    assert "machine starts in" in compared.stderr


def test_python_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tonnage.diff` holds to the settings of the environment as the command does."""
    monkeypatch.setenv("TONNAGE_AS_OF", "no-date")
    with pytest.raises(InputError, match="no-date"):
        diff(BERT, BERT)
