"""`tonnage catalog refresh`, `diff`, `snapshots` as a user runs them, against a server of our own; killed, too."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BERT = str(ROOT / "examples" / "bert-finetune.tonnage.yaml")
DAY = ("--as-of", "2026-11-21")
HTTP = ("aws", "aws-spot-advisor", "azure", "gcp", "digitalocean", "skypilot", "bedrock")
Run = Callable[..., subprocess.CompletedProcess[str]]
SKYPILOT = b"""\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
g4dn.xlarge,T4,1.0,4.0,16.0,,0.54,0.22,us-east-1,us-east-1a
g4dn.2xlarge,T4,1.0,8.0,32.0,,0.76,0.30,us-east-1,us-east-1a
"""


@pytest.fixture
def shapes(server: Any) -> ModuleType:
    return sys.modules[type(server).__module__]


@pytest.fixture
def environment(tmp_path: Path, server: Any) -> dict[str, str]:
    """A home and a cache of the test's own; every source at the test's server."""
    dropped = ("TONNAGE_", "AWS_", "GOOGLE_", "DIGITALOCEAN_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    urls = {f"TONNAGE_{name.upper().replace('-', '_')}_URL": server.url for name in HTTP}
    server.files["/aws/vms.csv"] = SKYPILOT
    return kept | urls | {
        "TONNAGE_HOME": str(tmp_path / "home"), "TONNAGE_CACHE": str(tmp_path / "cache"), "COLUMNS": "160",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]), "PYTHONUTF8": "1",
        "TONNAGE_GCP_API_KEY": "s3cret-key", "DIGITALOCEAN_TOKEN": "s3cret-token",
    }  # fmt: skip


@pytest.fixture
def tonnage(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """One command line within this process: only what is killed or installed needs one of its own."""
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        from tonnage.cli import run as run_line

        code = run_line(arguments)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


def by_name(account: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["title"]: one for one in account["sources"]}


ALL = tuple(part for name in (*HTTP, "databricks") for part in ("--source", name))


def test_a_refresh_from_every_source(tonnage: Run, server: Any, shapes: ModuleType, tmp_path: Path) -> None:
    """Those that can be asked answer, the others say what to set; plans and `show` then use the new prices."""
    server.gcp = [
        shapes.gcp_sku("G2 Instance Core running in Americas", 0.025),
        shapes.gcp_sku("G2 Instance Ram running in Americas", 0.003),
        shapes.gcp_sku("Nvidia L4 GPU running in Americas", 0.57),
    ]
    server.azure.append(shapes.azure_item("Standard_NC8as_T4_v3", 0.0))
    server.azure.append(shapes.azure_item("Standard_NC16as_T4_v3", 120.4))
    done = tonnage("catalog", "refresh", *ALL, "--region", "us-east-1", "--region", "eastus", "--region",
                   "us-central1", "--region", "tor1", *DAY, "-o", "json")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "plans use it from now on\n")
    account = json.loads(done.stdout)
    status = {title: one["status"] for title, one in by_name(account).items()}
    answering = {
        "AWS price list", "AWS Spot Instance Advisor", "Azure retail prices", "GCP billing catalog",
        "DigitalOcean sizes", "SkyPilot catalog aws", "Bedrock price list",
    }  # fmt: skip
    assert {title for title, how in status.items() if how == "answered"} == answering
    assert status["databricks"] == "skipped"
    assert "--url databricks=" in by_name(account)["databricks"]["reason"]
    assert by_name(account)["Azure retail prices"]["quarantined"] == {
        "the price is not above zero": 1, "more than 4 times the price it had before": 1,
    }  # fmt: skip
    folder = tmp_path / "home" / "snapshots" / "2026-11-21"
    assert Path(account["folder"]) == folder
    with (folder / "quarantine.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["instance_type"] for row in rows} == {"Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3"}
    assert account["quarantined"] == len(rows) == 2
    with (folder / "managed_prices.csv").open(newline="") as file:
        managed = list(csv.DictReader(file))
    [tokens] = [row for row in managed if row["source"] == "Bedrock price list"]
    assert (tokens["sku"], tokens["region_cloud"]) == ("amazon.nova-lite-v1:0 input", "us-east-1")
    packaged = {"databricks", "aws-sagemaker", "aws-ec2-reserved", "gcp-vertex", "gcp-cud", "aws-bedrock"}
    assert {row["platform"] for row in managed} >= packaged
    shown = json.loads(tonnage("catalog", "show", "g4dn.xlarge", "-o", "json").stdout)
    here = {one["purchase"]: one for one in shown["offers"] if one["region"] == "us-east-1"}
    assert here["on_demand"]["usd_per_instance_hour"] == 0.53
    assert here["on_demand"]["read_on"] == "2026-11-21"
    plan = json.loads(tonnage("plan", BERT, *DAY, "-o", "json").stdout)
    assert plan["catalog"]["snapshot"] == "2026-11-21"
    everything = done.stdout + done.stderr + "".join(
        path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    )  # fmt: skip
    assert "s3cret" not in everything


def test_a_refresh_loses_no_way_to_buy(tonnage: Run) -> None:
    """What a plan chooses from or refuses before a refresh stands after it: platforms and reserved prices too."""

    def ways(*where: str) -> set[tuple[str, ...]]:
        plan = json.loads(tonnage("plan", BERT, *DAY, "--top", "100000", "-o", "json", *where).stdout)
        keys = ("provider", "platform", "instance_type", "purchase")
        return {tuple(str(one.get(key)) for key in keys) for one in (*plan["options"], *plan["refused"])}

    before = ways()
    assert any("databricks" in one for one in before)
    assert any("reserved_1y" in one for one in before)
    for _ in range(2):  # the second stands on a snapshot that has managed prices of its own
        assert tonnage("catalog", "refresh", "--source", "aws", "--source", "bedrock", "--region", "us-east-1",
                       *DAY).returncode == 0  # fmt: skip
    assert ways() >= before


BOTH = ("--source", "aws", "--source", "azure", "--region", "us-east-1", "--region", "eastus")
FAULTS = [
    "500",
    "hang",
    *(pytest.param(one, marks=pytest.mark.slow) for one in ("429", "404", "reset", "cut", "text", "html", "list")),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_source_is_named_beside_the_others(tonnage: Run, server: Any, fault: str) -> None:
    """Whatever Azure does, the AWS list is used, Azure is named with the reason, and the exit code is 0."""
    server.faults.queues["/api/retail/prices"] = [fault]
    limit_s = "6" if fault == "hang" else "60"
    done = tonnage("catalog", "refresh", *BOTH, "--timeout", limit_s, *DAY, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = by_name(json.loads(done.stdout))
    assert found["AWS price list"]["status"] == "answered"
    assert found["Azure retail prices"]["status"] == "failed"
    assert found["Azure retail prices"]["reason"]


def test_when_none_answers_the_old_snapshot_stays(tonnage: Run, server: Any, tmp_path: Path) -> None:
    """Exit code 1, an error that names a reason, no new snapshot, and plans go on with the one of before."""
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    server.faults.queues["/"] = ["500"]
    done = tonnage("catalog", "refresh", *BOTH, "--timeout", "20", *DAY, "-o", "json")
    assert done.returncode == 1
    assert "no source answered (2 failed, 0 skipped): AWS price list: " in done.stderr
    assert json.loads(done.stdout)["folder"] is None
    assert [path.name for path in (tmp_path / "home" / "snapshots").iterdir()] == ["2026-11-21"]


def test_the_second_refresh_of_a_day_is_the_one_used(tonnage: Run, server: Any, shapes: ModuleType) -> None:
    """Snapshots of one day are ordered by their moment; older ones stay and can be compared."""
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    server.ec2["us-east-1"] = [shapes.ec2_row("g4dn.xlarge", "0.60")]
    done = tonnage("catalog", "refresh", "--source", "aws", *DAY)
    assert "plans use it from now on" in done.stderr
    lines = json.loads(tonnage("catalog", "snapshots", "-o", "json").stdout)["snapshots"]
    names = [one["name"] for one in lines]
    assert names[:2] == ["2026-11-20", "2026-11-21"]
    assert [one["in_use"] for one in lines] == [False, False, True]
    moved = json.loads(tonnage("catalog", "diff", names[1], names[2], "-o", "json").stdout)
    assert moved["counts"] == {"price": 1, "new": 0, "gone": 2, "spec": 0}  # its reserved prices: their basis moved
    one, *gone = moved["differences"]
    assert {(each["name"], each["purchase"]) for each in gone} == {
        ("g4dn.xlarge", "reserved_1y"), ("g4dn.xlarge", "reserved_3y"),
    }  # fmt: skip
    assert (one["name"], one["before"], one["after"]) == ("g4dn.xlarge", "0.53", "0.6")
    assert one["change_pct"] == pytest.approx(13.2075, abs=1e-3)


@pytest.mark.parametrize(
    "form", ["table", *(pytest.param(one, marks=pytest.mark.slow) for one in ("csv", "md", "html"))]
)
def test_diff_and_snapshots_have_every_form(tonnage: Run, form: str) -> None:
    """Each form names what moved and where from."""
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    done = tonnage("catalog", "diff", "2026-11-20", "2026-11-21", "-o", form)
    assert done.returncode == 0
    assert "g4dn.xlarge" in done.stdout
    assert "2026-11-21" in tonnage("catalog", "snapshots", "-o", form).stdout


@pytest.mark.slow
def test_a_snapshot_that_cannot_be_read_is_listed(tonnage: Run, tmp_path: Path) -> None:
    """A damaged snapshot and one elsewhere stand in the list, the first with its problem; others can be compared."""
    assert tonnage("catalog", "refresh", "--source", "aws", "--to", "mine", *DAY).returncode == 0
    damaged = tmp_path / "home" / "snapshots" / "damaged"
    damaged.mkdir(parents=True)
    (damaged / "snapshot.toml").write_text("name = ")
    done = tonnage("catalog", "snapshots", "--catalog", "mine", "-o", "json")
    lines = {Path(one["folder"]).name: one for one in json.loads(done.stdout)["snapshots"]}
    assert "cannot be read" in lines["damaged"]["problem"]
    assert (lines["mine"]["place"], lines["mine"]["in_use"]) == ("elsewhere", True)
    assert lines["2026-11-20"]["place"] == "built in"
    assert tonnage("catalog", "diff", "2026-11-20", "mine").returncode == 0
    assert "no snapshot '2026-11-19'" in tonnage("catalog", "diff", "2026-11-19", "mine").stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("refresh", "--source", "azur"), "did you mean 'azure'"),
        (("refresh", "--url", "azure"), "expected NAME=URL"),
        (("refresh", "--provider", "nobody"), "no provider named 'nobody'"),
        (("refresh", "--provider", "gcp", "--source", "aws"), "no source has prices of that provider"),
        (("diff", "2026-11-20", "1999-01-01"), "no snapshot '1999-01-01'"),
        (("diff", "2026-11-20", "2026-11-20", "--kind", "x"), "no kind of difference"),
    ],
)
def test_bad_input_is_distinguished(tonnage: Run, line: tuple[str, ...], says: str) -> None:
    """Exit code 2, with what to write instead."""
    done = tonnage("catalog", *line)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.slow
def test_progress_is_for_terminals_only(environment: dict[str, str], tonnage: Run, server: Any, tmp_path: Path) -> None:
    """On a terminal the sources awaited stand on stderr; through a pipe there is no such line."""
    pty = pytest.importorskip("pty")
    server.faults.queues["/api/retail/prices"] = ["hang"]
    line = ("catalog", "refresh", *BOTH, "--timeout", "4", *DAY)
    assert "waiting for" not in tonnage(*line, "--to", "a").stderr
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage", *line, "--to", "b"], cwd=tmp_path, env=environment, stderr=side,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(side)
    said = b""
    try:
        while part := os.read(terminal, 4096):
            said += part
    except OSError:  # the other side was closed: the process has ended
        os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert b"waiting for" in said
    assert b"Azure retail prices" in said


def test_a_dry_run_writes_nothing(tonnage: Run, tmp_path: Path) -> None:
    """It asks and judges, says what it found, and leaves no file behind."""
    done = tonnage("catalog", "refresh", "--source", "aws", "--dry-run", *DAY, "-o", "json")
    assert done.returncode == 0
    account = json.loads(done.stdout)
    assert (account["read"], account["folder"], account["dry_run"]) == (1, None, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_to_names_the_folder(tonnage: Run, tmp_path: Path) -> None:
    """`--to DIR` writes there, new or empty, and never over a snapshot."""
    (tmp_path / "mine").mkdir()
    done = tonnage("catalog", "refresh", "--source", "aws", "--to", "mine", *DAY)
    assert (done.returncode, done.stderr) == (0, "use it with --catalog mine\n")
    assert tonnage("catalog", "show", "g4dn.xlarge", "--catalog", "mine").returncode == 0
    again = tonnage("catalog", "refresh", "--source", "aws", "--to", "mine", *DAY)
    assert again.returncode == 1
    assert "exists already" in again.stderr


OTHERS_SOURCE = """
from datetime import date
from decimal import Decimal
from dataclasses import replace
from tonnage.catalog import load_catalog
from tonnage.sources import SourceKind
from tonnage.testing import FakeSource

def build(here):
    offer = here.known.offers_of(here.known.instance_type("g4dn.xlarge"))[0]
    return [FakeSource(name="Mine", offers=(replace(offer, usd_per_instance_hour=Decimal("0.5")),))]

KIND = SourceKind(name="mine", providers=("aws",), gives="one price", needs="nothing", build=build)
NO_KIND = 7
"""


@pytest.mark.parametrize(
    ("value", "code", "says"), [("KIND", 0, ""), ("NO_KIND", 1, "no SourceKind"), ("X", 1, "AttributeError")]
)
def test_an_installed_package_may_bring_a_source(
    tmp_path: Path, environment: dict[str, str], value: str, code: int, says: str
) -> None:
    """A package's entry point in the group `tonnage.sources` is asked like ours; a broken one is named."""
    info = tmp_path / "lib" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tonnage.sources]\nmine = mine_source:{value}\n")
    (tmp_path / "lib" / "mine_source.py").write_text(OTHERS_SOURCE)
    path = os.pathsep.join([environment["PYTHONPATH"], str(tmp_path / "lib")])
    process = started(
        environment | {"PYTHONPATH": path}, tmp_path, *REFRESH[:4], "--source", "mine", *DAY, "-o", "json"
    )
    printed, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert says in said
    if code == 0:
        assert by_name(json.loads(printed))["Mine"]["status"] == "answered"


def started(environment: dict[str, str], folder: Path, *code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *code], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.02)


REFRESH = ("-m", "tonnage", "catalog", "refresh", "--source", "aws", "--source", "azure", *DAY)


@pytest.mark.parametrize(
    ("how", "code"), [pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_ended_while_it_asks(
    environment: dict[str, str], tonnage: Run, server: Any, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """Killed or interrupted in mid-question, the snapshot of before is used as it was, and the next refresh works."""
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    before = tonnage("catalog", "offers", "-o", "csv").stdout
    server.faults.queues["/api/retail/prices"] = ["hang"]
    asked = len(server.asked)
    process = started(environment, tmp_path, *REFRESH)
    wait_until(lambda: any(path.startswith("/api/retail") for path in server.asked[asked:]), process)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    if how == signal.SIGINT:
        assert "interrupted" in said
    assert [path.name for path in (tmp_path / "home" / "snapshots").iterdir()] == ["2026-11-21"]
    assert tonnage("catalog", "offers", "-o", "csv").stdout == before
    server.faults.queues.clear()
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0


# The program itself, but it stops for good after the offers are written, before the folder gets its name.
STOPS_IN_MID_WRITE = """
import sys, time
from tonnage.sources import snapshots
write = snapshots._write_csv
def write_and_stop(path, columns, rows):
    write(path, columns, rows)
    if path.name == "offers.csv":
        print("written", path, flush=True)
        time.sleep(600)
snapshots._write_csv = write_and_stop
from tonnage.cli import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_ended_while_it_writes(environment: dict[str, str], tonnage: Run, tmp_path: Path, how: signal.Signals) -> None:
    """Killed between two files of the new snapshot: the old one is the one in use, whole; the next refresh works."""
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    before = tonnage("catalog", "offers", "-o", "csv").stdout
    home = tmp_path / "home" / "snapshots"
    process = started(environment, tmp_path, "-c", STOPS_IN_MID_WRITE, *REFRESH[2:])
    assert process.stdout is not None
    assert process.stdout.readline().startswith("written")
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    drafts = [path for path in home.iterdir() if path.name.startswith(".")]
    assert len(drafts) == (0 if how == signal.SIGINT else 1)
    assert json.loads(tonnage("catalog", "snapshots", "-o", "json").stdout)["snapshots"][-1]["name"] == "2026-11-21"
    assert tonnage("catalog", "offers", "-o", "csv").stdout == before
    for draft in drafts:
        os.utime(draft, (0, 0))  # a day later
    assert tonnage("catalog", "refresh", "--source", "aws", *DAY).returncode == 0
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
