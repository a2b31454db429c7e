"""The finished reports of docs/gallery are those of today's code and data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.cli.running import run

ROOT = Path(__file__).parents[2]
FINISHED = sorted(path for path in (ROOT / "docs" / "gallery").glob("*.md") if path.name != "README.md")


def test_there_are_as_many_as_examples() -> None:
    """Every compare file among the examples has a finished report."""
    folder = ROOT / "examples" / "compare"
    files = [path for path in folder.glob("*.tonnage.yaml") if "kind: compare" in path.read_text()]
    assert [path.stem for path in FINISHED] == sorted(path.name.removesuffix(".tonnage.yaml") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("finished", FINISHED, ids=lambda path: path.stem)
def test_a_finished_report_is_fresh(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make gallery` writes it anew."""
    monkeypatch.chdir(ROOT)
    again = tmp_path / finished.name
    file = f"examples/compare/{finished.stem}.tonnage.yaml"
    assert run(["compare", file, "--as-of", "2026-11-20", "-q", "--report", str(again)]) == 0
    assert again.read_text() == finished.read_text()
