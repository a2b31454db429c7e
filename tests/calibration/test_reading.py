"""Tables of measurements: read whole and typed, skipped with a reason, or refused naming file, line and column."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.reading import SeenIds, read_inference_rows, read_training_rows
from tonnage.calibration.rows import TrainingRow
from tonnage.errors import InputError

from .conftest import TRAINING_COLUMNS, Write

ROOT = Path(__file__).parents[2]


def test_cells_become_typed_values(write: Write) -> None:
    """Whole numbers, numbers, texts; blank is None or an empty text, never zero."""
    [row] = read_training_rows(write([{"n_layers": "12.0", "params": "1.1e8", "vocab": "", "attention": ""}]))
    assert isinstance(row, TrainingRow)
    assert (row.n_layers, row.params, row.vocab, row.attention, row.value) == (12, 1.1e8, None, "", 100.0)
    assert isinstance(row.n_layers, int)


def test_columns_are_found_by_name(write: Write) -> None:
    """The order of columns does not matter, more columns do no harm, and optional ones may be missing."""
    kept = [name for name in reversed(TRAINING_COLUMNS) if name not in ("mem_kind", "note", "quality")]
    [row] = read_training_rows(write([{"value": "7", "colour": "red"}], columns=[*kept, "colour"]))
    assert isinstance(row, TrainingRow)
    assert (row.value, row.gpu, row.note) == (7.0, "T4", "")


def test_a_byte_order_mark_and_blank_lines_do_no_harm(write: Write) -> None:
    """Spreadsheets write both."""
    path = write([{}, {}])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\nt2", b"\r\n\r\nt2"))
    assert [row.id for row in read_training_rows(path) if isinstance(row, TrainingRow)] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": ""}, "no value"),
        ({"value": "0"}, "value is zero"),
        ({"value": "nan"}, "value is not finite"),
        ({"value": "inf"}, "value is not finite"),
        ({"value": "-3"}, "value is negative"),
        ({"seq_len": "-128"}, "seq_len is negative"),
        ({"n_gpus": "NaN"}, "n_gpus is not finite"),
        ({"value": "fast"}, "value is not a number"),
        ({"params": "7B"}, "params is not a number"),
        ({"n_layers": "12.5"}, "n_layers is not a whole number"),
    ],
)
def test_what_says_nothing_is_skipped_with_its_reason(write: Write, change: dict[str, str], reason: str) -> None:
    """A row with an unusable number is skipped; the rows around it are read."""
    before, found, after = read_training_rows(write([{}, change, {}]))
    assert isinstance(found, SkippedRow)
    assert (found.row_id, found.reason, found.line) == ("t2", reason, 3)
    assert isinstance(before, TrainingRow)
    assert isinstance(after, TrainingRow)


def test_zero_may_be_a_measurement(write: Write) -> None:
    """«fits» 0 says that it does not."""
    [row] = read_training_rows(write([{"metric": "fits", "value": "0"}]))
    assert isinstance(row, TrainingRow)


def test_a_second_row_of_one_id_is_skipped(write: Write) -> None:
    """The first is kept, whatever lies between them."""
    found = list(read_training_rows(write([{"id": "a"}, {"id": "b"}, {"id": "a", "quality": "suspect"}])))
    assert [getattr(row, "reason", "") for row in found] == ["", "", "duplicate id"]
    assert found[2].suspect  # type: ignore[union-attr]


def test_ids_are_remembered_beyond_one_batch() -> None:
    """The set of ids moves into sorted arrays as it grows and still knows them all."""
    seen = SeenIds()
    assert not any(seen.add(f"row {number}") for number in range(150_000))
    assert all(seen.add(f"row {number}") for number in (0, 65_535, 65_536, 140_000, 149_999))


def test_a_row_without_an_id_is_named_by_its_line(write: Write) -> None:
    """An id is for reporting; its lack is no reason to skip."""
    found = list(read_training_rows(write([{"id": ""}, {"id": ""}])))
    assert [row.id for row in found if isinstance(row, TrainingRow)] == ["line 2", "line 3"]


def test_a_line_number_counts_lines_not_rows(write: Write) -> None:
    """A note of two lines does not shift the place of a broken cell behind it."""
    _, found = read_training_rows(write([{"note": "two\nlines"}, {"value": "x"}]))
    assert isinstance(found, SkippedRow)
    assert found.line == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"id,model\n", "line 1: no column .*'params'"),
        (b"\xff\xfe\x00i\x00d", "not UTF-8"),
        (b'id,"mod', "CSV"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """One clear sentence, never a stack trace."""
    path = tmp_path / "facts.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        list(read_training_rows(path))


def test_missing_and_doubled_columns_are_named(write: Write) -> None:
    """The hint lists what a table needs."""
    with pytest.raises(InputError, match="no column 'gpu', 'metric'") as caught:
        list(read_training_rows(write([{}], columns=[c for c in TRAINING_COLUMNS if c not in ("gpu", "metric")])))
    assert "gpu" in str(caught.value.hint)
    with pytest.raises(InputError, match="column 'value' stands twice"):
        list(read_training_rows(write([{}], columns=[*TRAINING_COLUMNS, "value"])))


def test_a_short_line_is_an_error(write: Write) -> None:
    """Cells must not slide into other columns."""
    path = write([{}])
    path.write_text(path.read_text() + "t2,too,short\n")
    with pytest.raises(InputError, match="line 3: 3 cells"):
        list(read_training_rows(path))


@pytest.mark.parametrize("place", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened(tmp_path: Path, place: str) -> None:
    """Missing, or a folder."""
    with pytest.raises(InputError, match="cannot be read"):
        list(read_inference_rows(tmp_path / place))


def test_a_header_alone_is_a_table_of_no_rows(write: Write) -> None:
    assert list(read_training_rows(write([]))) == []


@pytest.mark.slow
def test_two_hundred_megabytes_are_streamed(write: Write, tmp_path: Path) -> None:
    """Validating a file of 200 MB takes less than 400 MiB of memory (parsed at once it would take gigabytes).

    The peak is that of the child's own address space: what `getrusage` tells a child begins at its parent's.
    """
    head, row = write([{"note": "n" * 120}]).read_text().splitlines()
    path = tmp_path / "large.csv"
    with path.open("w") as stream:
        stream.write(head + "\n")
        for start in range(0, 900_000, 1000):
            stream.write("".join(f"r{number}{row[2:]}\n" for number in range(start, start + 1000)))
    assert path.stat().st_size > 180e6
    code = (
        "import sys\n"
        "from tonnage.calibration.prediction import JudgedRow\n"
        "from tonnage.calibration.reading import read_training_rows\n"
        "from tonnage.calibration.validation import validate\n"
        "rows = read_training_rows(sys.argv[1])\n"
        "found = validate(JudgedRow(row_id=r.id, metric=r.metric, family=r.family, gpu=r.gpu, measured=r.value,"
        " predicted=r.value * 1.1, suspect=False, group='training time') for r in rows)\n"
        "assert found.predicted == 900_000\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(int(status['VmHWM'].split()[0]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert int(done.stdout) < 400
