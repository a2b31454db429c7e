"""Files of rows are fingerprinted when a run begins, and looked at when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.runs import data_prints
from tonnage.runs.data_prints import check_prints, with_prints
from tonnage.runs.spec import DataSource, DataSpec


@pytest.fixture
def data(tmp_path: Path) -> DataSpec:
    for name in ("a.jsonl", "b.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(f'{{"text": "{name}"}}\n' * 50)
    train = DataSource(location=str(tmp_path / "[ab].jsonl"), format="jsonl", more=("s3://bucket/rows.jsonl",))
    return with_prints(DataSpec(train=train, test=DataSource(location=str(tmp_path / "test.jsonl"), format="jsonl")))


def swap_a_letter(path: Path) -> None:
    """The same size, the same number of rows."""
    path.write_text(path.read_text().replace("jsonl", "jsonk", 1))


def add_a_row(path: Path) -> None:
    path.write_text(path.read_text() + "{}\n")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a letter": (lambda folder: swap_a_letter(folder / "b.jsonl"), "b.jsonl is not what it was"),
    "a row more": (lambda folder: add_a_row(folder / "test.jsonl"), "test.jsonl is not what it was"),
    "a shard gone": (lambda folder: (folder / "a.jsonl").unlink(), "a.jsonl is gone"),
}


@pytest.mark.parametrize("whole", [data_prints.WHOLE_BYTES, 100], ids=["hashed whole", "hashed in parts"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_reported(
    tmp_path: Path, data: DataSpec, change: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another content, size or number of files: the file is named. Untouched, copied or touched files pass."""
    monkeypatch.setattr(data_prints, "WHOLE_BYTES", whole)
    monkeypatch.setattr(data_prints, "PIECE_BYTES", 64)
    data = with_prints(data)
    (tmp_path / "a.jsonl").touch()
    check_prints(data)
    make, said = CHANGES[change]
    make(tmp_path)
    with pytest.raises(InputError, match=said):
        check_prints(data)


def test_a_run_that_began_without_prints_goes_on(data: DataSpec) -> None:
    """Nothing to compare with is no difference."""
    check_prints(replace(data, prints=None))
    assert [Path(one.path).name for one in data.prints or ()] == ["a.jsonl", "b.jsonl", "test.jsonl"]
