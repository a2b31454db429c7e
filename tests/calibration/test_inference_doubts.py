"""Which measured inference rows are doubted, from figures alone: a table that repeats another, what no memory feeds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.calibration.inference_doubts import doubt_repeated, repeated_tables, table_of
from tonnage.calibration.inference_fit import fit_inference
from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.kinds import kind_named
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog

FACTS = Path(os.environ.get("TONNAGE_FACTS", "")) / "inference_calibration.csv"
CATALOG = load_catalog()
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROW = InferenceRow(
    id="r", config_id="c", source="someone/tables@1", model="bert-large", params=335e6, n_layers=24, d_model=1024,
    n_heads=16, n_kv_heads=16, d_ff=4096, vocab=30522, kind="encoder", gpu="A100-40GB-SXM", n_gpus=1, tp=1,
    engine="tf-xla", precision="tf32", weights_quant="", batch_size=1, concurrency=None, input_len=128.0,
    output_len=None, metric="latency_ms_mean", value=9.5, note="",
)  # fmt: skip


def table(precision: str, faster: float = 1.0, **said: object) -> list[InferenceRow]:
    """A launch-bound row, then times that grow with the batch, `faster` than those of tf32."""
    rows = [
        replace(
            ROW, id=f"{precision}{batch}", precision=precision, batch_size=batch, value=max(6.0, 2.0 * batch / faster)
        )
        for batch in BATCHES
    ]
    return [replace(row, **said) for row in rows]  # type: ignore[arg-type]


def doubted(rows: Sequence[InferenceRow]) -> Counter[str]:
    return Counter(row.precision for row in doubt_repeated(rows, CATALOG) if row.quality == "suspect")


def test_a_table_that_repeats_a_slower_format_is_doubted() -> None:
    """The whole table of the faster format, with the reason, whoever printed it; that of the slower one stands."""
    rows = [*table("tf32"), *table("fp16", faster=1.02)]
    assert doubted(rows) == {"fp16": len(BATCHES)}
    (reason,) = repeated_tables(rows, CATALOG).values()
    assert "fp16 table repeats the tf32 table" in reason
    assert list(doubt_repeated(rows, CATALOG))[-1].doubt == reason


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("faster", [*table("tf32"), *table("fp16", faster=1.4)]),
        ("bound by launches", [*table("tf32", value=6.0), *table("fp16", value=6.0)]),
        ("another document", [*table("tf32"), *table("fp16", source="another/table@1")]),
        ("another device", [*table("tf32"), *table("fp16", gpu="A100-80GB-SXM")]),
        ("no faster there", [*table("bf16"), *table("fp16")]),
        ("no tensor units for it", [*table("fp16", gpu="V100-16GB"), *table("int8", gpu="V100-16GB")]),
        ("too few", [*table("tf32")[:5], *table("fp16")[:5]]),
        ("unknown device", [*table("tf32", gpu="X1"), *table("fp16", gpu="X1")]),
    ],
)
def test_what_may_be_alike_is_not_doubted(why: str, rows: list[InferenceRow]) -> None:
    assert not doubted(rows), why


def test_doubted_rows_are_judged_and_in_no_fit() -> None:
    rows = list(doubt_repeated([*table("tf32"), *table("fp16")], CATALOG))
    judged = [row for row in judge_inference(rows, CATALOG) if isinstance(row, JudgedRow)]
    assert sum(row.suspect for row in judged) == len(BATCHES)
    assert len(judged) == 2 * len(BATCHES)
    assert fit_inference(rows, CATALOG).rows["compiled"] == len(BATCHES)


def test_rows_that_cannot_be_read_keep_their_place() -> None:
    skipped = SkippedRow(row_id="x", metric="m", reason="no value")
    assert list(doubt_repeated([ROW, skipped, ROW], CATALOG)) == [ROW, skipped, ROW]
    rows = [one for row in [*table("tf32"), *table("fp16")] for one in (skipped, row)]
    found = list(doubt_repeated(rows, CATALOG))
    assert [isinstance(one, SkippedRow) for one in found] == [True, False] * (len(rows) // 2)
    assert sum(isinstance(one, InferenceRow) and one.quality == "suspect" for one in found) == len(BATCHES)


DECODER = replace(
    ROW, model="llama2-7b", kind="decoder", gpu="A100-80GB-SXM", engine="vllm", precision="fp16", note="batch 1",
    output_len=128.0, metric="output_tokens_per_s",
)  # fmt: skip


def unfed(row: InferenceRow) -> bool:
    case = read_case(row, CATALOG)
    assert isinstance(case, InferenceCase), case
    return case.faster_than_memory


def test_a_row_that_no_memory_could_feed_is_in_no_fit_and_counts_as_a_miss() -> None:
    rows = [DECODER, replace(DECODER, id="unfed", value=80_105.0)]
    judged = [row for row in judge_inference(rows, CATALOG) if isinstance(row, JudgedRow)]
    assert [row.suspect for row in judged] == [False, False]
    assert fit_inference(rows, CATALOG).rows["llm-python"] == 1


@pytest.mark.parametrize(("rate", "answer"), [(80105.0, True), (9470.0, True), (84.0, False), (140.0, False)])
def test_a_rate_that_no_memory_could_feed_is_doubted(rate: float, answer: bool) -> None:
    """A batch of 1 writes a token each time all weights are read: 6.6e9 of them, 4 bits each, at 2,039 GB/s make at
    most 600 a second. What says more is no rate of tokens (megabytes, as a rule)."""
    row = replace(DECODER, value=rate)
    assert unfed(row) is answer
    assert unfed(replace(row, batch_size=1024)) is False
    assert unfed(replace(row, metric="tpot_ms", value=1e3 / rate)) is answer


def test_two_devices_feed_twice_as_much_and_idle_experts_are_not_read() -> None:
    row = replace(DECODER, value=900.0)
    assert unfed(row)
    assert not unfed(replace(row, tp=2, n_gpus=2))
    sparse = replace(row, model="mixtral-8x7b", tp=2, n_gpus=2, value=500.0)
    assert not unfed(sparse)  # 46.7e9 parameters in all would allow 173 a second, the 12.9e9 of a token 630
    assert unfed(replace(sparse, value=700.0))


@pytest.mark.facts
@pytest.mark.skipif(not FACTS.exists(), reason="needs the measured facts")
def test_one_published_table_repeats_another() -> None:
    """Of all tables in the facts, one: all its rows, of one document, device and format."""
    rows = list(kind_named("inference").read(FACTS, CATALOG))
    found = {table_of(row) for row in rows if isinstance(row, InferenceRow) and "repeats" in row.doubt}
    assert len(found) == 1
    (one,) = found
    assert all(row.doubt for row in rows if isinstance(row, InferenceRow) and table_of(row) == one)
