"""The store gives back what was put in, once, whoever writes beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.calibration.fact_files import dump_facts, load_facts
from tonnage.errors import InputError
from tonnage.runs import EventKind, RunFolder
from tonnage.store import Store, open_store

SOURCE = Path(__file__).parents[2] / "src"
FACTS = Path(os.environ.get("TONNAGE_FACTS", "no-facts"))
ROW = {"id": "r1", "config_id": "one", "model": "bert-base", "gpu": "T4", "metric": "sequences_per_s", "value": "12.5"}


def test_a_run_is_found_with_its_state_and_spend(store: Store, folder: RunFolder) -> None:
    """State, counts and dollars of the index are those that the journal tells."""
    store.index_run(folder)
    (row,) = store.runs()
    assert (row.name, row.state, row.attempt, row.step, row.lost_steps) == ("one", "succeeded", 2, 20, 3)
    assert (row.events, row.model, row.usd) == (7, "bert-base", pytest.approx(4.0))
    assert [(one.session, one.seconds, one.usd) for one in store.spend(run="one")] == [(1, 3600, 4.0)]
    assert store.runs(name="two") == () == store.runs(state="failed")


def test_indexing_again_changes_nothing(store: Store, folder: RunFolder) -> None:
    """The same folder twice is one run with the same events; a new event is added, not all of them again."""
    store.index_run(folder)
    before = store.runs()
    store.index_run(folder)
    assert store.runs() == before
    folder.record(EventKind.REGISTERED, who="supervisor", model="m", version="1")
    store.index_run(folder)
    assert store.runs()[0].events == 8
    with store._database.read() as connection:
        assert connection.execute(text("SELECT count(*), max(position) FROM events")).one() == (8, 7)


def test_a_forgotten_run_leaves_its_measurements(store: Store, folder: RunFolder) -> None:
    """Its events and spend go with it; what it measured stays known."""
    store.index_run(folder)
    store.add_measurements([ROW], run="one")
    store.forget_run(folder)
    assert store.runs() == () == store.spend()
    assert len(store.measurements(run="one")) == 1


def test_measurements_come_back_cell_by_cell(store: Store) -> None:
    """Every column of the file, blank where none was given, in the order they came."""
    assert store.add_measurements([ROW, {**ROW, "id": "r0", "value": "0.10"}]) == 2
    rows = store.measurements()
    assert [row["id"] for row in rows] == ["r1", "r0"]
    assert tuple(rows[0]) == TRAINING_COLUMNS
    assert rows[1]["value"] == "0.10"
    assert rows[1]["note"] == ""
    assert [row["id"] for row in store.measurements(gpu="T4", value="12.5")] == ["r1"]


def test_the_same_row_is_kept_once(store: Store) -> None:
    """Content decides, not the time or the run it is said to be of."""
    assert store.add_measurements([ROW, ROW]) == 1
    assert store.add_measurements([dict(reversed(ROW.items()))], run="another") == 0
    assert store.add_measurements([{**ROW, "value": "12.6"}]) == 1


def test_program_columns_are_kept(store: Store) -> None:
    """They come back where a row fills them; two programs are two rows, and a row without stays the row it was."""
    told = [{**ROW, "program": "torchtune", "loss": "chunked"}, {**ROW, "program": "axolotl"}]
    assert store.add_measurements([ROW, *told, told[0]]) == 3
    rows = store.measurements()
    assert tuple(rows[0]) == (*TRAINING_COLUMNS, "program", "loss")
    assert [(row["program"], row["loss"]) for row in rows] == [("", ""), ("torchtune", "chunked"), ("axolotl", "")]
    assert store.add_measurements(rows) == 0


def test_rows_of_runs_name_theirs(store: Store) -> None:
    """Where nobody says which run a row is of, its source does."""
    store.add_measurements([{**ROW, "source": "tonnage run reviews"}])
    assert [row["id"] for row in store.measurements(run="reviews")] == ["r1"]


def test_rows_go_to_the_table_of_their_columns(store: Store) -> None:
    """A row with an engine is of inference; one with a column of neither table is refused by name."""
    store.add_measurements([{"id": "i1", "engine": "vllm", "metric": "ttft_ms", "value": "20"}])
    assert [row["engine"] for row in store.measurements("inference")] == ["vllm"]
    assert store.measurements() == []
    with pytest.raises(InputError, match="column 'colour'"):
        store.add_measurements([{"id": "i1", "colour": "red"}])
    with pytest.raises(InputError, match="column 'gpus'"):
        store.measurements(gpus="T4")


def test_a_plan_is_kept_as_it_was_asked_for(store: Store) -> None:
    """The text comes back byte by byte under its digest; twice the same is one plan."""
    digest = store.add_plan('{"schema": "tonnage/plan@1"}\n', name="bert")
    assert store.add_plan('{"schema": "tonnage/plan@1"}\n', name="bert") == digest
    (plan,) = store.plans(sha256=digest[:8])
    assert (plan.document, plan.name) == ('{"schema": "tonnage/plan@1"}\n', "bert")
    assert store.plans(sha256="%") == ()


@pytest.mark.skipif(not (FACTS / "training_calibration.csv").is_file(), reason="TONNAGE_FACTS names no fact tables")
def test_published_facts_come_back_byte_by_byte(store: Store) -> None:
    """The whole table of training facts, taken in and written out, is the same file: a fit of it is the same fit."""
    table, rows = load_facts(FACTS / "training_calibration.csv")
    assert store.add_measurements(rows, table=table) == len(rows)
    text = dump_facts(TRAINING_COLUMNS, store.measurements(table))
    assert text.encode() == (FACTS / "training_calibration.csv").read_bytes()


WRITER = """
import sys
from tonnage.store import open_store
with open_store(sys.argv[1]) as store:
    for number in range(20):
        store.add_measurements([{"id": f"{sys.argv[2]}-{number}", "metric": "sequences_per_s", "value": "1"}])
"""


def test_writers_side_by_side_lose_nothing(url: str) -> None:
    """Two processes open a database that is not there yet and write to it at once: every row is in it."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, name], env={"PYTHONPATH": str(SOURCE)})
        for name in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    with open_store(url) as store:
        rows = store.measurements()
    assert {row["id"] for row in rows} == {f"{name}-{number}" for name in "ab" for number in range(20)}
    assert len(rows) == 40
