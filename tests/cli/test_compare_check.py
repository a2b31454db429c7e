"""`tonnage compare --check`: its exit codes, its forms, and input that is no document."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

WRONG = "| Instance | GPUs |\n|---|---|\n| p5.48xlarge | 4 |\n"
RIGHT = "| Instance | GPUs |\n|---|---|\n| p5.48xlarge | 8 |\n"


def document(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "notes.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_found_claims_are_a_result(inside: Run, tmp_path: Path) -> None:
    """Wrong claims exit 0: they are what was asked for."""
    done = inside("compare", "--check", document(tmp_path, WRONG), "-o", "json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["counts"]["wrong"] == 1
    assert found["claims"][0]["line"] == 3


@pytest.mark.parametrize(("text", "code"), [(WRONG, 1), (RIGHT, 0), ("p4d.24xlarge: $32.77/hour", 1), ("# Words", 0)])
def test_strict(inside: Run, tmp_path: Path, text: str, code: int) -> None:
    """--strict exits 1 on wrong and stale claims, after the report; else 0."""
    done = inside("compare", "--check", document(tmp_path, text), "--strict")
    assert done.returncode == code
    assert "notes.md" in done.stdout
    assert ("wrong or stale" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"", "is empty"), (b" \n\t\n", "is empty"), (b"\x89PNG\r\n\x1a\n\xff\xfe", "not UTF-8"), (b"a\0b", "zero bytes")],
)
def test_no_document(inside: Run, tmp_path: Path, text: bytes, said: str) -> None:
    """Empty and binary files are bad input, with a hint."""
    done = inside("compare", "--check", document(tmp_path, text))
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr


def test_missing_file_and_folder(inside: Run, tmp_path: Path) -> None:
    """A missing file, a folder and no file at all are bad input."""
    for arguments, said in (
        (("--check", str(tmp_path / "none.md")), "does not exist"),
        (("--check", str(tmp_path)), "is a folder"),
        ((), "tonnage compare --check"),
    ):
        done = inside("compare", *arguments)
        assert done.returncode == 2
        assert said in done.stderr


def test_byte_order_mark_and_windows_lines(inside: Run, tmp_path: Path) -> None:
    """A file saved on Windows is read like any other, line numbers too."""
    done = inside(
        "compare", "--check", document(tmp_path, b"\xef\xbb\xbf" + WRONG.replace("\n", "\r\n").encode()), "-o", "json"
    )
    assert [claim["line"] for claim in json.loads(done.stdout)["claims"]] == [3]


def test_same_text_same_answer(inside: Run, tmp_path: Path) -> None:
    """The JSON is byte-identical from run to run."""
    path = document(tmp_path, WRONG + "\n2 × 3 = 7\n")
    assert (
        inside("compare", "--check", path, "-o", "json").stdout
        == inside("compare", "--check", path, "-o", "json").stdout
    )
