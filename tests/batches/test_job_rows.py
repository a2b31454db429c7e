"""Jobs and their rows: answers go to the rows that were asked, lines end where JSON says, costs count every answer."""

from __future__ import annotations

import json
from pathlib import Path

from tonnage.batches.job_chunks import _most_written
from tonnage.batches.job_notes import JobNote, JobNotes, joined_keys
from tonnage.batches.openai_jobs import _lines_of


def test_keys_of_rows_are_joined_in_any_order() -> None:
    """The same rows have the same keys, other rows others: an input that changed is seen."""
    keys = [f"{one:032x}" for one in (7, 2**127 + 1, 12345)]
    assert joined_keys(keys) == joined_keys(reversed(keys)) == joined_keys((joined_keys(keys[:2]), keys[2]))
    assert joined_keys(keys) != joined_keys([*keys[:2], f"{9:032x}"])


def test_lines_end_with_a_line_feed_alone() -> None:
    """Texts may hold separators of Unicode unescaped, and pieces may be cut anywhere."""
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in ("a\u2028b", "c\x85d", "e")]
    data = b"\n".join(lines)
    for cut in range(1, len(data)):
        assert list(_lines_of([data[:cut], data[cut:]])) == lines


def test_every_answer_counts() -> None:
    """`n` answers may each be as long as stated; what is not stated is not known."""
    assert _most_written({"max_tokens": 100, "n": 8}) == 800
    assert _most_written({"max_completion_tokens": 5, "best_of": 3}) == 15
    assert _most_written({"n": 8}) is None


def test_a_note_keeps_what_its_job_may_cost(tmp_path: Path) -> None:
    """A later start counts it against its limit; what rows do not state stays unknown."""
    notes = JobNotes(tmp_path / "out.jsonl")
    for token, written in (("a", 800), ("b", None)):
        notes.save(JobNote(token=token, place="p", model="m", path="/v1/chat/completions", lines=[1, 2],
                           keys=joined_keys(["0a"]), size_bytes=400, most_written=written, job="j"))  # fmt: skip
    assert {(one.token, one.size_bytes, one.most_written) for one in notes.load()} == {
        ("a", 400, 800),
        ("b", 400, None),
    }
