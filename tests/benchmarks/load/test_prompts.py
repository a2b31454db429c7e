"""Texts of a load test: as long as asked for, no two with the same beginning; rows of a data set in turn."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tonnage.benchmarks.load.prompts import Prompts, TokenCount, learn_count, made_text, read_rows
from tonnage.errors import InputError
from tonnage.traffic.arrivals import Arrival
from tonnage.workload.jobs import Lengths

FIXED = Lengths(mean=50.0, maximum=50)


@pytest.mark.parametrize("words", [1, 5, 6, 7, 500, 45_000])
def test_texts_have_as_many_words_as_asked_for(words: int) -> None:
    """Longer than the text they are cut from, too."""
    assert len(made_text(words, random.Random(3)).split()) == words


def test_no_two_texts_begin_alike() -> None:
    """The first words differ among a thousand texts; a seed gives the same texts."""
    draw = random.Random(1)
    texts = [made_text(40, draw) for _ in range(1000)]
    assert len({tuple(text.split()[:6]) for text in texts}) == 1000
    again = random.Random(1)
    assert texts == [made_text(40, again) for _ in range(1000)]


def test_lengths_of_a_trace_win() -> None:
    """Where an arrival states them; else they are drawn from the distribution, with its mean."""
    prompts = Prompts(count=TokenCount(), input_tokens=FIXED, output_tokens=Lengths(mean=20.0, maximum=90))
    told = prompts.prompt(Arrival(at_s=0.0, input_tokens=7, output_tokens=3))
    assert (len(told.text.split()), told.output_tokens) == (7, 3)
    drawn = [prompts.prompt(Arrival(at_s=0.0)) for _ in range(4000)]
    assert {len(one.text.split()) for one in drawn} == {50}
    assert sum(one.output_tokens or 0 for one in drawn) / 4000 == pytest.approx(20.0, rel=0.05)


def test_a_count_that_says_nothing_is_one_a_word() -> None:
    """A service that counts the same for both texts, or fewer for the longer one."""
    assert learn_count((10, 5), (20, 5)) == learn_count((10, 9), (20, 5)) == TokenCount()


def test_rows_of_a_data_set_come_in_turn(tmp_path: Path) -> None:
    """All forms of a row; a length of its own stays, else the test's is taken; lines of a text file."""
    file = tmp_path / "rows.jsonl"
    rows = [
        {"text": "a"}, {"prompt": "b", "max_tokens": 9}, {"messages": [{"role": "user", "content": "c"}]},
        {"custom_id": "d", "body": {"input": "d", "temperature": 0}},
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = Prompts(count=TokenCount(), input_tokens=FIXED, output_tokens=FIXED, rows=read_rows(file))
    found = [prompts.prompt(Arrival(at_s=0.0)) for _ in range(5)]
    assert [one.text for one in found] == ["a", "b", "c", "d", "a"]
    assert [one.output_tokens for one in found] == [50, 9, 50, 50, 50]
    (tmp_path / "rows.txt").write_text("one line\n\nanother\n")
    assert [one.text for one in read_rows(tmp_path / "rows.txt")] == ["one line", "another"]


@pytest.mark.parametrize(("line", "said"), [("{", "jsonl:1"), ("[1]", "found a list"), ('{"x":1}', "no text")])
def test_rows_that_cannot_be_used_are_named(tmp_path: Path, line: str, said: str) -> None:
    """File and line; an empty file too."""
    file = tmp_path / "rows.jsonl"
    file.write_text(line)
    with pytest.raises(InputError, match=said):
        read_rows(file)
    file.write_text("")
    with pytest.raises(InputError, match="has no row"):
        read_rows(file)
