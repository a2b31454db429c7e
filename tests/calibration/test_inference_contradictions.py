"""Tables that two other documents contradict: doubted where those two agree, and only there."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tonnage.calibration.inference_contradictions import contradicted_tables, doubt_contradicted, program_table
from tonnage.calibration.kinds import kind_named
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog

BATCHES = (1, 2, 4, 8)
ROW = InferenceRow(
    id="r", config_id="c", source="", model="bert-base", params=110e6, n_layers=12, d_model=768, n_heads=12,
    n_kv_heads=12, d_ff=3072, vocab=30522, kind="encoder", gpu="T4", n_gpus=1, tp=1, engine="tf", precision="fp32",
    weights_quant="", batch_size=1, concurrency=None, input_len=128.0, output_len=None, metric="latency_ms_mean",
    value=1.0, note="", compiled="y",
)  # fmt: skip


def table(source: str, longer: float, **said: object) -> list[InferenceRow]:
    """A document's times of four batches, `longer` times 10 ms a sequence."""
    rows = [
        replace(ROW, id=f"{source}{batch}", source=source, batch_size=batch, value=10.0 * batch * longer)
        for batch in BATCHES
    ]
    return [replace(row, **said) for row in rows]  # type: ignore[arg-type]


SLOW, FIRST, SECOND = table("a/one@1 first", 1.8), table("a/one@1 second", 1.0), table("b/two@1", 1.1)


def doubted(rows: list[InferenceRow]) -> set[str]:
    return {row.source for row in doubt_contradicted(lambda: iter(rows)) if row.quality == "suspect"}


def test_a_table_that_two_publishers_contradict_is_doubted() -> None:
    """The whole table, a configuration that nobody else printed too, with the reason; those who agree stand."""
    alone = replace(SLOW[0], id="alone", input_len=384.0)
    rows = [*SLOW, alone, *FIRST, *SECOND]
    assert doubted(rows) == {"a/one@1 first"}
    (reason,) = contradicted_tables(rows).values()
    assert "1.6 times longer" in reason
    assert "b/two@1" in reason
    found = {row.id: row for row in doubt_contradicted(lambda: iter(rows))}
    assert (found["alone"].quality, found["alone"].doubt) == ("suspect", reason)


def test_rates_are_times_of_a_batch() -> None:
    """Another document's sequences a second contradict a table of latencies."""
    rates = [
        replace(row, id=f"{row.id} rate", metric="sequences_per_s", value=1e3 * (row.batch_size or 0) / row.value)
        for row in SECOND
    ]
    assert doubted([*SLOW, *FIRST, *rates]) == {"a/one@1 first"}


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("no third", [*SLOW, *FIRST]),
        ("of one publisher", [*SLOW, *FIRST, *table("a/one@1 third", 1.1)]),
        ("the two disagree", [*SLOW, *FIRST, *table("b/two@1", 1.4)]),
        ("as far as revisions", [*table("a/one@1 first", 1.4), *FIRST, *SECOND]),
        ("between both", [*table("a/one@1 first", 1.0), *table("a/one@1 second", 0.6), *table("b/two@1", 1.7)]),
        ("another device", [*SLOW, *FIRST, *table("b/two@1", 1.1, gpu="V100-16GB")]),
        ("another program", [*SLOW, *FIRST, *table("b/two@1", 1.1, compiled="")]),
        ("too few", [*SLOW, *FIRST, *SECOND[:3]]),
        ("start-up in the mean", [*table("a/one@1 first", 1.8, start_up="y"), *FIRST, *SECOND]),
        ("a decoder", [replace(row, kind="decoder") for row in (*SLOW, *FIRST, *SECOND)]),
        ("doubted already", [*SLOW, *FIRST, *table("b/two@1", 1.1, quality="suspect")]),
    ],
)
def test_what_nobody_contradicts_is_not_doubted(why: str, rows: list[InferenceRow]) -> None:
    """Two documents, one publisher, a disagreement among the two, or other work say nothing of a table."""
    assert not contradicted_tables(rows), why


def test_what_is_doubted_keeps_its_first_reason_and_its_place() -> None:
    """Rows come in their order, skipped ones among them; a reason that is there stays."""
    skipped = SkippedRow(row_id="x", metric="", reason="none")
    rows = [*FIRST, skipped, *SECOND, *SLOW, replace(SLOW[0], id="known", doubt="its own")]

    def read() -> Iterator[object]:
        return iter(rows)

    found = list(doubt_contradicted(read))
    assert [getattr(row, "id", "x") for row in found] == [getattr(row, "id", "x") for row in rows]
    assert found[-1].doubt == "its own"


def test_a_file_is_read_with_its_contradictions(tmp_path: Path) -> None:
    """The reader of inference tables marks them, wherever in the file the other documents stand."""
    path = tmp_path / "rows.csv"
    names = [field.name for field in fields(InferenceRow)]
    with path.open("w", newline="", encoding="utf-8") as stream:
        written = csv.DictWriter(stream, names)
        written.writeheader()
        for row in (*SLOW, *FIRST, *SECOND):
            written.writerow({name: "" if getattr(row, name) is None else getattr(row, name) for name in names})
    rows = [row for row in kind_named("inference").read(path, load_catalog()) if isinstance(row, InferenceRow)]
    assert {program_table(row).source for row in rows if row.quality == "suspect"} == {"a/one@1 first"}
    assert len(rows) == len(SLOW) + len(FIRST) + len(SECOND)
