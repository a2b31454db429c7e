"""Texts to tokens: of a long one only its beginning is read, with the tokens of the whole; the server goes on."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tonnage.serving.encoder.faults import TooLarge
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.tokens import TextTokenizer, beginning, is_wordwise
from tonnage.testing.tiny_encoders import WORDS

SPACES = (" ", "  ", "\n", "\t ", ". ", "\u00a0", "\x1c", "\u2028")


@pytest.fixture
def tokens(encoders: dict[str, Path]) -> TextTokenizer:
    return TextTokenizer(read_folder(encoders["question-answering"]), most_tokens=None)


def long_text(seed: int, words: int) -> str:
    chosen = random.Random(seed)
    return "".join(chosen.choice([*WORDS[4:], "filmwas", "x" * 40]) + chosen.choice(SPACES) for _ in range(words))


def plainly(folder: Path, *parts: str) -> Any:
    """The whole text's tokens, cut by the library itself."""
    import tokenizers

    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_truncation(64)
    return made.encode(*parts)


@pytest.mark.parametrize("words", [3, 60, 63, 100, 400])
def test_a_beginning_has_the_tokens_of_the_whole(tokens: TextTokenizer, encoders: dict[str, Path], words: int) -> None:
    """Texts and pairs, either part long or both: as the library cuts the whole."""
    one, other = long_text(words, words), long_text(words + 1, 300)
    for given in ((one,), (one, other), (other, one), ("who wrote it", one), (one, "x" * 2000)):
        expected = plainly(encoders["question-answering"], *given)
        found = tokens.read(given if len(given) == 2 else given[0], truncate=True)
        assert found.ids == expected.ids
        assert list(found.segments or [0] * len(found.ids)) == expected.type_ids
        assert [at for at in found.parts.offsets if at is not None] == [
            at for at, of in zip(expected.offsets, expected.sequence_ids, strict=True) if of == 1
        ]


def test_a_text_far_too_long_is_refused_by_its_beginning(tokens: TextTokenizer) -> None:
    """Not all of its 100,000 words are read to know that they are too many; a text with one token more is counted."""
    with pytest.raises(TooLarge, match=r"has more than (\d{2,3}) tokens, the model takes 64"):
        tokens.read("it " * 100_000, truncate=False)
    with pytest.raises(TooLarge, match="has 65 tokens"):
        tokens.read("it " * 63, truncate=False)


def test_long_texts_are_read_beside_the_event_loop(tokens: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones are read at once, long ones in another thread."""
    read, where = tokens.read, []

    def watched(given: Any, *, truncate: bool) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return read(given, truncate=truncate)

    monkeypatch.setattr(tokens, "read", watched)
    for given in ("it was", "it " * 3000):
        asyncio.run(tokens.read_all([given], truncate=True))
    assert where == [True, False]


def test_a_beginning_ends_where_a_word_does() -> None:
    """Never within a word, never after a space; a text without such a place stays whole."""
    assert beginning("it was good", 1) == "it"
    assert beginning("it was  good", 3) == "it was"
    assert beginning("it was good", 8) == "it was good"
    assert beginning("it", 8) == "it"


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ({"type": "BertPreTokenizer"}, True),
        ({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "WhitespaceSplit"}]}, True),
        ({"type": "ByteLevel", "use_regex": True}, True),
        ({"type": "ByteLevel", "use_regex": False}, False),
        ({"type": "Metaspace"}, False),
        (None, False),
    ],
)
def test_only_splits_at_spaces_allow_it(split: Any, expected: bool) -> None:
    """Where spaces may be inside tokens, a text's beginning can have other tokens than the whole."""
    assert is_wordwise(json.loads(json.dumps({"pre_tokenizer": split}))) is expected
