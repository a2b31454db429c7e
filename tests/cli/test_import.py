"""`tonnage catalog import`: newer prices beside the built-in ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BERT = str(ROOT / "examples" / "bert-finetune.tonnage.yaml")
DAY = ("--as-of", "2026-11-20")
Run = Callable[..., subprocess.CompletedProcess[str]]
SKYPILOT = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
g4dn.xlarge,T4,1.0,4.0,16.0,"{'Gpus': [{'Name': 'T4', 'Manufacturer': 'NVIDIA', 'Count': 1.0, 'MemoryInfo': \
{'SizeInMiB': 16384}}], 'TotalGpuMemoryInMiB': 16384}",0.6,0.123,us-east-1,us-east-1a
nonsense,T4,1.0,4.0,16.0,,700.0,,us-east-1,us-east-1a
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "aws.csv"
    path.write_text(SKYPILOT)
    return path


def spot_price(offers: list[dict[str, object]]) -> object:
    (found,) = [one for one in offers if one["region"] == "us-east-1" and one["purchase"] == "spot"]
    return found["usd_per_instance_hour"]


def test_imported_prices_are_used_from_then_on(inside: Run, prices: Path, tmp_path: Path) -> None:
    """The import replaces the price of that machine, keeps the rest, says what it dropped; plans then use it."""
    done = inside("catalog", "import", "skypilot", str(prices), "--cloud", "aws", *DAY, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "plans use it from now on\n")
    account = json.loads(done.stdout)
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert account["rows_read"] == 2
    assert account["rows_used"] == 1
    assert sum(account["dropped"].values()) == 1
    assert Path(account["folder"]) == tmp_path / "home" / "snapshots" / "2026-11-20-skypilot-aws"
    shown = json.loads(inside("catalog", "show", "g4dn.xlarge", "-o", "json").stdout)
    assert shown["catalog"] == "2026-11-20-skypilot-aws"
    assert spot_price(shown["offers"]) == 0.123
    plan = json.loads(inside("plan", BERT, *DAY, "-o", "json").stdout)
    assert plan["catalog"]["snapshot"] == "2026-11-20-skypilot-aws"
    assert {option["provider"] for option in plan["options"]} > {"aws", "gcp"}


def test_alone_and_out(inside: Run, prices: Path, tmp_path: Path) -> None:
    """--alone holds those prices only, --out says where; a second time is refused and nothing is overwritten."""
    line = ("catalog", "import", "skypilot", str(prices), "--cloud", "aws", "--out", "mine", "--alone", *DAY)
    first = inside(*line)
    assert (first.returncode, first.stderr) == (0, "use it with --catalog mine\n")
    written = sorted(path.name for path in (tmp_path / "mine").iterdir())
    before = (tmp_path / "mine" / "offers.csv").read_bytes()
    assert written == ["instances.csv", "offers.csv", "snapshot.toml"]
    offers = json.loads(inside("catalog", "offers", "--catalog", "mine", "-o", "json").stdout)["offers"]
    assert {(one["instance_type"], one["purchase"]) for one in offers} == {
        ("g4dn.xlarge", "on_demand"),
        ("g4dn.xlarge", "spot"),
    }
    again = inside(*line)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert (tmp_path / "mine" / "offers.csv").read_bytes() == before


def test_read_on_is_kept(inside: Run, prices: Path) -> None:
    """--read-on dates the prices; a file without it leaves them undated."""
    inside("catalog", "import", "skypilot", str(prices), "--cloud", "aws", "--out", "a", "--alone", *DAY)
    line = ("catalog", "import", "skypilot", str(prices), "--cloud", "aws", "--out", "b", "--alone", *DAY)
    assert inside(*line, "--read-on", "2026-10-01").returncode == 0
    dates = [
        {
            one["read_on"]
            for one in json.loads(inside("catalog", "offers", "--catalog", name, "-o", "json").stdout)["offers"]
        }
        for name in ("a", "b")
    ]
    assert dates == [{None}, {"2026-10-01"}]


def test_missing_file(inside: Run, tmp_path: Path) -> None:
    """A file that is not there: exit 1, nothing written."""
    done = inside("catalog", "import", "skypilot", "none.csv", "--cloud", "aws", *DAY)
    assert done.returncode == 1
    assert "none.csv cannot be read" in done.stderr
    assert list(tmp_path.iterdir()) == []
