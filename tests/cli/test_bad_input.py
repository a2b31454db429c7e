"""Bad input: exit 2, what is wrong and what to do on stderr, nothing on stdout."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BERT = str(ROOT / "examples" / "bert-finetune.tonnage.yaml")
Run = Callable[..., subprocess.CompletedProcess[str]]

BAD = [  # command line, what the error says, what the hint says
    (("plan",), "Missing argument 'FILE'", "tonnage plan --help"),
    (("plam",), "No such command 'plam'", "--help"),
    (("plan", BERT, "--topp", "3"), "No such option: --topp", "--help"),
    (("plan", BERT, "--top", "0"), "'--top'", "--help"),
    (("plan", BERT, "--top", "ten"), "'--top'", "--help"),
    (("plan", "nowhere.yaml"), "nowhere.yaml: no such file", "examples"),
    (("plan", "."), "is a folder", ""),
    (("plan", BERT, "-o", "xml"), "found 'xml', expected one of table, json, csv, md, html", "html"),
    (("plan", BERT, "--rank", "price"), "cannot rank by 'price'", "cost, time, pareto"),
    (("plan", BERT, "--gpu", "H10O"), "no accelerator named 'H10O'", "H100-SXM"),
    (("plan", BERT, "--gpu", "H100:"), "is not a GPU filter", "NAME:8"),
    (("plan", BERT, "--provider", "amazon"), "no provider named 'amazon'", "aws"),
    (("plan", BERT, "--region", "us-esat-1"), "no region named 'us-esat-1'", "us-east-1"),
    (("plan", BERT, "--deadline", "tomorrow"), "deadline: found 'tomorrow'", ""),
    (("plan", BERT, "--budget", "-5"), "budget: found -5", ""),
    (("plan", BERT, "--budget", "nan"), "budget: found nan", ""),
    (("plan", BERT, "--budget", "0.00001"), "less than the least that is ever billed", "budget_usd"),
    (("plan", BERT, "--deadline", "1m"), "a machine starts in 5m", "buy.startup"),
    (("plan", BERT, "--platform", "sagemakr"), "no platform named 'sagemakr'", "sagemaker"),
    (("plan", BERT, "--memory-margin", "2"), "memory margin", "0.1"),
    (("plan", BERT, "--layout", "mb=0"), "--layout: micro_batch: found 0", ""),
    (("size", BERT, "--layout", "tp=5"), "does not divide the 12 heads", "one of 1, 2, 3"),
    (("explain", BERT, "--layout", "tpp=2"), "--layout: no key 'tpp'", "tensor_parallel"),
    (("plan", BERT, "--max-price-age", "0"), "flag --max-price-age-days", ""),
    (("plan", BERT, "--as-of", "yesterday"), "flag --as-of: found 'yesterday'", ""),
    (("plan", BERT, "--as-of", "2026-11-20T10:00"), "names no time zone", ""),
    (("explain", BERT, "H10O"), "no accelerator named 'H10O'", "H100-SXM"),
    (("explain", BERT, "p5.24xlarge"), "'p5.24xlarge' does not exist", "p5.48xlarge"),
    (("size", BERT, "--gpu", "A1000"), "no accelerator named 'A1000'", "A100"),
    (("catalog", "show", "p5.24xlarge"), "'p5.24xlarge' does not exist", "what exists: p5.4xlarge, p5.48xlarge"),
    (("catalog", "show", "g4dn.xlarg"), "no instance type named 'g4dn.xlarg'", "g4dn.xlarge"),
    (("catalog", "gpus", "--sort", "price"), "cannot sort by 'price'", "memory_gib"),
    (("catalog", "instances", "--cpu-arch", "sparc"), "no processor architecture 'sparc'", "arm64"),
    (("catalog", "offers", "--purchase", "lease"), "'lease' is not a purchase mode", "on_demand"),
    (("catalog", "models", "bert-bse-uncased"), "no model named 'bert-bse-uncased'", "bert-base-uncased"),
    (("catalog", "import", "skypilot", "x.csv", "--cloud", "awz"), "no provider named 'awz'", "aws"),
    (("catalog", "import", "skypilot", "x.csv"), "Missing option '--cloud'", "--help"),
    (("catalog", "import", "gpuhunt", "--read-on", "today"), "--read-on: found 'today'", "2026-11-20"),
]


@pytest.mark.parametrize(
    ("line", "said", "hint"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_usage(inside: Run, line: tuple[str, ...], said: str, hint: str) -> None:
    """Each says what is wrong, and where that helps what to do."""
    done = inside(*line)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    error, _, rest = done.stderr.partition("\nhint: ")
    assert error.startswith("error: ")
    assert said in error
    assert hint in rest
    assert "Traceback" not in done.stderr


GOOD = "kind: train\nmodel: bert-base-uncased\ndata: {samples: 100, seq_len: 128, epochs: 1}\n"
FILES = [  # text of the file, what the error says
    (GOOD + "colour: red\n", "bad.tonnage.yaml:4: `colour`: unknown key"),
    (GOOD.replace("100", "-1"), "bad.tonnage.yaml:3: `data.samples`"),
    (GOOD.replace("100", ".nan"), "bad.tonnage.yaml:3: `data.samples`"),
    (GOOD.replace("bert-base-uncased", "bert-bse"), "bad.tonnage.yaml:2: `model`"),
    (GOOD.replace("bert-base-uncased", "hf://no/such"), "HF_HUB_OFFLINE"),
    (GOOD.replace("}", ""), "bad.tonnage.yaml:"),
    (GOOD + "constraints: {deadline: 2020-01-01}\n", "in the past"),
    (GOOD + "constraints: {gpus: H10O}\n", "H10O"),
    (GOOD + "#" * 1024 * 1024, "over 1 MB"),
    ("", "is empty"),
    ("\x00\x01", "bad.tonnage.yaml"),
]


@pytest.mark.parametrize("verb", ["plan", "size", "explain"])
@pytest.mark.parametrize(("text", "said"), FILES, ids=range(len(FILES)))
def test_bad_files(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, text: str, said: str
) -> None:
    """A file that cannot be used: file and line in the error, nothing written anywhere."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "bad.tonnage.yaml").write_text(text)
    done = inside(verb, "bad.tonnage.yaml")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: bad.tonnage.yaml")
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tonnage.yaml"]


def test_broken_catalog_is_a_failure(inside: Run, tmp_path: Path) -> None:
    """A snapshot folder without its files: exit 1, named."""
    (tmp_path / "none").mkdir()
    done = inside("plan", BERT, "--catalog", "none")
    assert done.returncode == 1
    assert "snapshot.toml does not exist" in done.stderr
    assert done.stdout == ""
