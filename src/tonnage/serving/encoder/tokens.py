"""From a request's texts to token numbers: outside Python's lock where they are long, and only as much as is used."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.caching import Kept
from tonnage.serving.encoder.faults import TooLarge
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.values import dataclass

SHORT_CHARS: Final = 2000  # of one request: read in less time than another thread takes to begin
CHARS_PER_TOKEN: Final = 8  # of the first attempt at a text's beginning; twice as many at each further one
WORDWISE: Final = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel"})
_WORD_END: Final = re.compile(r"(?<=\S)[ \t\r\n]")  # what every tokenizer takes for a space
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The span of each token in the text that answers are read from; None: in the question, or special."""

    text: str
    offsets: Sequence[tuple[int, int] | None]


class TextTokenizer:
    """Texts to token numbers by the folder's own fast tokenizer."""

    def __init__(self, folder: ModelFolder, *, most_tokens: int | None) -> None:
        try:
            library: Any = importlib.import_module("tokenizers")
        except ImportError as error:
            raise MissingExtra("an encoder's tokenizer", "serve") from error
        self.most_tokens = min(most_tokens or folder.most_tokens, folder.most_tokens)
        self._whole, self._cut = (library.Tokenizer.from_file(str(folder.path / "tokenizer.json")) for _ in range(2))
        for one in (self._whole, self._cut):
            one.no_padding()
            one.no_truncation()
        self._cut.enable_truncation(self.most_tokens)
        self._wordwise = is_wordwise(json.loads(self._whole.to_str()))
        self._task = folder.task
        self.padding = self._whole.token_to_id("[PAD]") or self._whole.token_to_id("<pad>") or 0

    async def read_all(self, given: Sequence[str | Pair], *, truncate: bool) -> list[EncodedText]:
        """The texts of one request; the event loop goes on meanwhile where they are long. Raises TooLarge."""
        chars = sum(len(one) if isinstance(one, str) else len(one[0]) + len(one[1]) for one in given)
        if chars <= SHORT_CHARS:
            return [self.read(one, truncate=truncate) for one in given]
        return await asyncio.to_thread(lambda: [self.read(one, truncate=truncate) for one in given])

    def key_parts(self, one: str | Pair) -> Sequence[bytes]:
        """The bytes of a text, or of both of a pair."""
        return [part.encode() for part in ((one,) if isinstance(one, str) else one)]

    def kept(self, item: EncodedText, answer: Any) -> Sequence[Kept]:
        """The one answer of a text."""
        return [(answer, len(item.ids))]

    def read(self, given: str | Pair, *, truncate: bool) -> EncodedText:
        """One text or pair. TooLarge where it has more tokens than the model takes, unless it may be cut."""
        parts: Sequence[str] = (given,) if isinstance(given, str) else given
        used, found = self._enough(parts)
        if len(found.ids) > self.most_tokens:
            if not truncate:
                more = "" if used is parts else "more than "
                raise TooLarge(f"the text has {more}{len(found.ids)} tokens, the model takes {self.most_tokens}: "
                               'shorten it, or send "truncate": true')  # fmt: skip
            found = _encoded(self._cut, used)
        segments = found.type_ids if len(parts) > 1 else None
        return EncodedText(ids=found.ids, segments=segments, parts=self._span(found, parts))

    def _enough(self, parts: Sequence[str]) -> tuple[Sequence[str], Any]:
        """The parts and their tokens; or the same with a beginning of the longest, where that has more tokens than the
        model takes. It keeps more than the other part has: which of a pair is longer decides how both are cut."""
        longest = max(range(len(parts)), key=lambda at: len(parts[at]))
        others = [part for at, part in enumerate(parts) if at != longest]
        chars = max(CHARS_PER_TOKEN * self.most_tokens, *map(len, others), 0)
        while self._wordwise and (short := beginning(parts[longest], chars)) != parts[longest]:
            alone = _encoded(self._whole, (short,))
            if len(alone.ids) > max([self.most_tokens, *(len(_encoded(self._whole, (one,)).ids) for one in others)]):
                used = tuple(short if at == longest else part for at, part in enumerate(parts))
                return used, _encoded(self._whole, used) if others else alone
            chars *= 2
        return parts, _encoded(self._whole, parts)

    def _span(self, found: Any, parts: Sequence[str]) -> Span | None:
        if self._task == "token-classification":
            offsets = [None if special else at for special, at in
                       zip(found.special_tokens_mask, found.offsets, strict=True)]  # fmt: skip
            return Span(text=parts[0], offsets=offsets)
        if self._task == "question-answering":
            offsets = [at if sequence == 1 else None for sequence, at in
                       zip(found.sequence_ids, found.offsets, strict=True)]  # fmt: skip
            return Span(text=parts[-1], offsets=offsets)
        return None


def _encoded(tokenizer: Any, parts: Sequence[str]) -> Any:
    """The tokens of a text or pair. Of `tokenizers` (0.23), `encode` holds Python's lock and `encode_batch` does not,
    but takes longer to begin."""
    if sum(map(len, parts)) <= SHORT_CHARS:
        return tokenizer.encode(*parts)
    return tokenizer.encode_batch([parts[0] if len(parts) == 1 else tuple(parts)])[0]


def beginning(text: str, chars: int) -> str:
    """The text up to the end of the word that holds character `chars`; all of it where no word ends after that."""
    end = _WORD_END.search(text, chars) if len(text) > chars else None
    return text if end is None else text[: end.start()]


def is_wordwise(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a tokenizer (as its JSON) splits at spaces before all else, so that the tokens of a text's beginning,
    cut where a word ends, begin those of the whole."""
    return any(kind in WORDWISE for kind in _pre_tokenizers(tokenizer.get("pre_tokenizer") or {}))


def _pre_tokenizers(said: Mapping[str, Any]) -> Iterator[str]:
    if said.get("type") == "Sequence":
        for one in said.get("pretokenizers", ()):
            yield from _pre_tokenizers(one)
    elif said.get("type") != "ByteLevel" or said.get("use_regex", True):
        yield str(said.get("type"))
