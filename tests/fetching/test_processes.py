"""Whole processes: killed, interrupted, two at once; what they print and how they leave."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli import run
from tonnage.fetching import verify

MIB = 2**20
FETCH = [sys.executable, "-m", "tonnage", "fetch"]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TONNAGE_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": ""}


@pytest.fixture(scope="module")
def large() -> bytes:
    """A file of six ranges of the real size."""
    return random.Random(3).randbytes(43 * MIB)


def begin(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*FETCH, *arguments], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_until_sent(shop: Any, count: int, process: subprocess.Popen[str]) -> None:
    while shop.sent_bytes < count and process.poll() is None:
        time.sleep(0.005)


def test_killed_at_random_it_goes_on_and_is_the_file(shop: Any, large: bytes, tmp_path: Path) -> None:
    """SIGKILL at random points, twice: the last run ends with the file, and ranges entered are not repeated."""
    url = shop.put("/a.bin", large, block_s=0.0004)
    dice = random.Random(11)
    for _ in range(2):
        process = begin(tmp_path, url, "--to", str(tmp_path / "out"), "--jobs", "2")
        wait_until_sent(shop, shop.sent_bytes + dice.randrange(17 * MIB, 21 * MIB), process)
        process.kill()
        process.communicate()
        assert not (tmp_path / "out" / "a.bin").exists()
    shop.files["/a.bin"].block_s = 0.0
    journal = next((tmp_path / "home").rglob("journal")).read_text().splitlines()
    before = shop.sent_bytes
    done = begin(tmp_path, url, "--to", str(tmp_path / "out"), "-o", "json")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert json.loads(out)["files"][0]["sha256"] == hashlib.sha256(large).hexdigest()
    assert (tmp_path / "out" / "a.bin").read_bytes() == large
    entered = len(journal) - 1
    assert entered >= 1
    assert shop.sent_bytes - before <= len(large) - entered * 8 * MIB + 8 * MIB  # the last range may be the short one


def test_ctrl_c_leaves_at_once_and_is_gone_on_from(shop: Any, large: bytes, tmp_path: Path) -> None:
    """Interrupted while the server is silent, it leaves with 130 and no traceback; the next run completes it."""
    stuck = __import__("threading").Event()
    url = shop.put("/a.bin", large, on_body=lambda number: stuck.wait(60) if number > 3 else None)
    process = begin(tmp_path, url, "--to", str(tmp_path / "out"), "--jobs", "1")
    wait_until_sent(shop, 24 * MIB, process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)  # far less than the 60 s for which the server stays silent
    stuck.set()
    assert process.returncode == 130
    assert err.strip() == "error: interrupted"
    before = shop.sent_bytes
    done = begin(tmp_path, url, "--to", str(tmp_path / "out"))
    done.communicate(timeout=120)
    assert (tmp_path / "out" / "a.bin").read_bytes() == large
    assert shop.sent_bytes - before < 20 * MIB


def test_two_at_once_share_the_cache_and_a_target(shop: Any, large: bytes, tmp_path: Path) -> None:
    """Two processes, one target, files in common: each came once, all stand in the folder and in its manifest."""
    small = [shop.put(f"/{number}.bin", bytes([number]) * 50_000) for number in range(12)]
    common = shop.put("/a.bin", large)
    both = [begin(tmp_path, common, *part, "--to", str(tmp_path / "out")) for part in (small[:8], small[4:])]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    checked = verify([str(tmp_path / "out")])
    assert len(checked) == 13
    assert {one.state for one in checked} == {"ok"}
    assert (tmp_path / "out" / "a.bin").read_bytes() == large
    assert shop.sent_bytes < len(large) + 12 * 50_000 + 100


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TONNAGE_HOME of this test."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_what_is_printed(shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has schema, totals and per file digest, source and place; stderr is silent without a terminal."""
    url = shop.put("/a.bin", b"abc")
    assert run(["fetch", url, "--to", str(tmp_path / "out"), "-o", "json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert printed.err == ""
    assert {key: document[key] for key in ("schema", "files_total", "files_failed", "size_bytes", "fetched_bytes")} == {
        "schema": "tonnage/fetch@1", "files_total": 1, "files_failed": 0, "size_bytes": 3, "fetched_bytes": 3,
    }  # fmt: skip
    assert document["seconds"] > 0
    (file,) = document["files"]
    assert file["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert (file["source"], file["places"], file["from_cache"]) == (url, [str(tmp_path / "out" / "a.bin")], False)
    assert run(["fetch", "--verify", str(tmp_path / "out")]) == 0
    assert "1 file read again, none changed or missing" in capsys.readouterr().out


@pytest.mark.usefixtures("home")
def test_failures_leave_with_1(shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What came is printed beside what did not; the exit code is 1."""
    good, bad = shop.put("/a.bin", b"abc"), shop.put("/b.bin", b"abcd", headers={"Repr-Digest": "sha-256=:AAAA:"})
    assert run(["fetch", good, bad, "--to", str(tmp_path / "out"), "-o", "csv"]) == 1
    printed = capsys.readouterr()
    assert "fetched" in printed.out
    assert "failed" in printed.out
    assert "error: 1 of 2 files did not come; b.bin" in printed.err
    (tmp_path / "out" / "a.bin").unlink()
    assert run(["fetch", "--verify", str(tmp_path / "out")]) == 1
    assert "changed or missing" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "arguments",
    [["ftp://host/x"], ["hf://gpt2"], ["http://127.0.0.1:1/"], ["--verify", "x", "--dry-run"],
     ["/", "--sha256", "xyz", "--include", "nothing-like-this"]],
)  # fmt: skip
def test_bad_input_leaves_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Usage that cannot be meant: exit 2 and a hint."""
    if arguments[0] == "/":
        arguments = [str(Path(__file__).parent), *arguments[1:]]
    assert run(["fetch", *arguments]) == 2
    assert "hint:" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_the_hubs_switch_for_offline_holds(
    shop: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HF_HUB_OFFLINE=1 is --offline, for every kind of source."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(["fetch", shop.put("/a.bin", b"abc")]) == 1
    assert "is not in the cache" in capsys.readouterr().err
    assert not shop.asked


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("module", "source", "extra"),
    [("gcsfs", "gs://bucket/x", "fetch-gs"), ("adlfs", "az://box/x", "fetch-az"), ("boto3", "s3://bucket/x", "fetch"),
     ("huggingface_hub", "hf://org/name", "fetch")],
)  # fmt: skip
def test_a_missing_library_names_its_extra(
    module: str, source: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the library of a scheme: exit 2 and the pip command."""
    monkeypatch.setitem(sys.modules, module, None)
    assert run(["fetch", source]) == 2
    assert f"pip install 'tonnage[{extra}]'" in capsys.readouterr().err


def test_a_bar_on_a_terminal(shop: Any, tmp_path: Path) -> None:
    """With stderr on a terminal a bar shows rate and time to go; stdout stays the report alone."""
    pty = pytest.importorskip("pty")
    url = shop.put("/a.bin", bytes(2 * MIB), block_s=0.01)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FETCH, url, "--to", str(tmp_path / "out"), "-o", "json"],
        env={**environment(tmp_path), "TERM": "xterm", "COLUMNS": "100"}, stdout=subprocess.PIPE, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    assert process.stdout is not None
    assert json.loads(process.stdout.read())["files_failed"] == 0
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert b"B/s" in shown
    assert b"to go" in shown
