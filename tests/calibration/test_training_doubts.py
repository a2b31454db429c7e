"""Training rows that print the figures of another number format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_doubts import doubt_repeated_formats, repeated_formats
from tonnage.catalog import Catalog

Row = Callable[..., TrainingRow]


@pytest.fixture
def document(row: Row) -> list[TrainingRow]:
    """One table of tf32 and fp16 on one and on eight A100; a second one whose tf32 column is its fp16 column."""
    figures = [("tf32", 1, 1000.0), ("fp16", 1, 2500.0), ("tf32", 8, 7900.0), ("fp16", 8, 19000.0),
               ("tf32", 1, 2410.0), ("fp16", 1, 2400.0), ("tf32", 8, 18600.0), ("fp16", 8, 18500.0)]  # fmt: skip
    return [
        row(id=f"t{at}", precision=precision, n_gpus=gpus, value=value, source="a/b:README.md")
        for at, (precision, gpus, value) in enumerate(figures)
    ]


def test_a_column_that_is_another_formats_is_doubted(document: list[TrainingRow], catalog: Catalog) -> None:
    """The slow format has figures of its own in the document; those that repeat the fast one's are doubted, with the
    reason, and the others are as they were, in their order."""
    skipped = SkippedRow(row_id="x", metric="", reason="value is no number")
    found = list(doubt_repeated_formats([*document[:3], skipped, *document[3:]], catalog))
    assert [one.id for one in found if isinstance(one, TrainingRow) and one.quality == "suspect"] == ["t4", "t6"]
    assert found[3] is skipped
    assert "tf32 prints what fp16 does" in found[5].doubt
    assert [one for one in found if one is not skipped and not one.doubt] == [
        one for one in document if one.id not in ("t4", "t6")
    ]


def test_what_may_be_chance_or_the_device_is_not_doubted(document: list[TrainingRow], catalog: Catalog) -> None:
    """One configuration alone, formats of one rate, and figures that no other row of the format contradicts."""
    assert repeated_formats(document[:6], catalog) == {}
    assert repeated_formats(document[4:], catalog) == {}
    alike = [replace(one, precision="bf16" if one.precision == "tf32" else "fp16") for one in document]
    assert repeated_formats(alike, catalog) == {}
    unknown = [replace(one, gpu="H900") for one in document]
    assert repeated_formats(unknown, catalog) == {}


def test_documents_are_not_held_against_each_other(document: list[TrainingRow], catalog: Catalog) -> None:
    """Another document's figure of the same configuration says nothing of this one's."""
    apart = [replace(one, source=f"{one.source} {at // 4}") for at, one in enumerate(document)]
    assert [one.quality for one in doubt_repeated_formats(apart, catalog)] == ["ok"] * 8
