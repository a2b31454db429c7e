"""int8 with fixed scales: calibrated on texts that represent those to come, and what that changes in the answers.

A scale that is computed for each batch (dynamic quantisation) makes an answer depend on its batch-mates; a scale
fixed beforehand does not. A quarter of the texts is kept out of the calibration: on it the answers are set beside those
in fp32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from tonnage.errors import InputError
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.export import INPUTS, exported, kept_graph
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.serving.encoder.runtimes import Array, OnnxModel, padded
from tonnage.serving.encoder.tasks import pooled, softmax
from tonnage.serving.encoder.tokens import Pair, TextTokenizer
from tonnage.values import dataclass

LEAST: Final = 16  # texts
MOST: Final = 512
EACH: Final = 4  # one of so many is kept out, to measure the change


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Change:
    """Answers in int8 beside those in fp32, of texts that were not calibrated with. Of vectors the cosine of both; of
    others the largest change of a probability, and the share of texts (or tokens) with the same likeliest class."""

    texts: int
    mean_cosine: float | None = None
    least_cosine: float | None = None
    largest_probability_change: float | None = None
    same_class_share: float | None = None


def calibrated(
    folder: ModelFolder, tokens: TextTokenizer, cache: Path, digest: str, file: Path
) -> tuple[Path, Int8Change]:
    """The graph in int8, and how its answers differ; both made once for these texts and this model."""
    given = read_texts(file)
    texts = [tokens.read(one, truncate=True) for one in given]
    whole = exported(folder, cache, weights="fp32")
    name = f"{folder.task}-int8-{hashlib.blake2b(json.dumps(given).encode(), digest_size=8).hexdigest()}"
    said = cache / digest / f"{name}.json"

    def write(graph: Path) -> None:
        from tonnage.serving.encoder.export import quantise_static

        quantise_static(whole, graph, _fed([one for at, one in enumerate(texts) if at % EACH], tokens.padding))
        change = _change(folder, whole, graph, texts[::EACH], tokens.padding)
        said.write_text(json.dumps(asdict(change)) + "\n", encoding="utf-8")

    graph = kept_graph(cache, digest, name, write)
    return graph, Int8Change(**json.loads(said.read_text(encoding="utf-8")))


def read_texts(file: Path) -> list[str | Pair]:
    """A text a line; of a `.jsonl`, a JSON text or pair of texts a line. InputError for fewer than 16."""
    try:
        text = file.read_text(encoding="utf-8")  # whose line ends are all \n now; other separators are part of a text
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the texts of {file} cannot be read: {error}") from error
    lines = [(at, line) for at, line in enumerate(text.split("\n"), start=1) if line.strip()][:MOST]
    found: list[str | Pair] = [line for _, line in lines]
    if file.suffix == ".jsonl":
        found = [_text(line, f"{file}:{at}") for at, line in lines]
    if len(found) < LEAST:
        raise InputError(f"{file} has {len(found)} texts", hint=f"at least {LEAST} that represent those to come")
    return found


def _text(line: str, where: str) -> str | Pair:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return (value[0], value[1])
    raise InputError(f"{where} is no text and no pair of texts in JSON", hint='"a text" or ["one", "other"]')


def _fed(texts: Sequence[EncodedText], padding: int) -> Iterator[Mapping[str, Array]]:
    """One text at a time: padding would widen what is measured."""
    for one in texts:
        yield dict(zip(INPUTS, padded([one], padding=padding), strict=True))


def _change(folder: ModelFolder, whole: Path, graph: Path, texts: Sequence[EncodedText], padding: int) -> Int8Change:
    models = [OnnxModel(one, threads=1) for one in (whole, graph)]
    if folder.task == "embedding":
        cosines = [_cosine(*(pooled(folder, *_both(model, one, padding))[0] for model in models)) for one in texts]
        return Int8Change(texts=len(texts), mean_cosine=float(np.mean(cosines)), least_cosine=min(cosines))
    largest, same = 0.0, []
    for one in texts:
        logits = [_both(model, one, padding)[0][0] for model in models]
        if folder.task == "question-answering":  # (tokens, start and end): which token it is
            logits = [found.T for found in logits]
        shares = [_probabilities(found) for found in logits]
        largest = max(largest, float(np.abs(shares[0] - shares[1]).max()))
        same.append(float((shares[0].argmax(-1) == shares[1].argmax(-1)).mean()))
    return Int8Change(texts=len(texts), largest_probability_change=largest, same_class_share=float(np.mean(same)))


def _both(model: OnnxModel, one: EncodedText, padding: int) -> tuple[Array, Array]:
    ids, mask, segments = padded([one], padding=padding)
    return model.outputs(ids, mask, segments), mask


def _probabilities(logits: Any) -> Array:
    """Of the classes; of a single one, that of being it or not."""
    if logits.shape[-1] == 1:
        logits = np.concatenate((logits, np.zeros_like(logits)), axis=-1)
    return softmax(logits)


def _cosine(one: Array, other: Array) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
