"""The next token learned: texts packed into full blocks, or one by one, padded; maybe only what answers a prompt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Items, Prepared
from tonnage.recipes.tasks.items import IGNORED, answers, encode, of_texts, pad, pad_widths
from tonnage.recipes.tasks.labels import check_texts
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input, save_model, shape_of
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel

TEXTS_AT_ONCE = 1000


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `text`; and `prompt`, where only the text that follows it is to be learned (nothing is packed then)."""
    splits = read(spec)
    tokenizer = load_tokenizer(spec)
    model = load_model(spec, "AutoModelForCausalLM", padding=tokenizer.pad_token_id)
    longest = longest_input(spec, tokenizer, model)
    encoded = [_cut(rows, spec, tokenizer, longest) for rows in splits]
    collate = partial(pad, tokenizer=tokenizer, labels=IGNORED, widths=pad_widths(spec.training.compile, longest))
    return Prepared(
        model=model,
        **of_texts(encoded, collate),
        evaluate=partial(_evaluate, collate=collate),
        save=partial(_save, tokenizer=tokenizer),
        baseline=partial(_baseline, encoded[0], encoded[-1], len(tokenizer)),
        shape=shape_of(model),
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return load_splits(spec.data, roles=("text", "prompt"), same=("text",))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on texts, cut as they were in training."""
    items = _cut(rows, trained.spec, trained.tokenizer, trained.longest)
    return _evaluate(trained.model, items, batch, collate=partial(pad, tokenizer=trained.tokenizer, labels=IGNORED))


def _cut(rows: DatasetRows, spec: RunSpec, tokenizer: Any, longest: int) -> Items:
    packed = spec.training.packing and spec.column("prompt") is None
    return (_packed if packed else _padded)(rows, spec, tokenizer, longest)


def _texts(rows: DatasetRows, spec: RunSpec) -> Sequence[str]:
    texts = check_texts(rows, spec.column("text") or "text", "text")
    for position, text in enumerate(texts):
        if not text.strip():
            raise DataError(f"{rows.where(position)}: an empty text", hint="remove the row")
    return texts


def _ends(tokenizer: Any) -> list[int]:
    """What ends a text: its own token, or what the tokenizer puts between two."""
    found = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    return [] if found is None else [found]


def _packed(rows: DatasetRows, spec: RunSpec, tokenizer: Any, longest: int) -> Items:
    """All texts in a row, each ended, cut into blocks of `longest` tokens; the last block is shorter."""
    texts, end = _texts(rows, spec), _ends(tokenizer)
    stream: list[int] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        encoded = tokenizer(list(texts[start : start + TEXTS_AT_ONCE]), add_special_tokens=False, verbose=False)
        stream.extend(chain.from_iterable([*ids, *end] for ids in encoded.input_ids))
    blocks = [stream[at : at + longest] for at in range(0, len(stream), longest)]
    if len(blocks[-1]) < 2 and len(blocks) > 1:
        blocks.pop()  # one token alone has nothing after it to learn

    def columns(some: range) -> Mapping[str, Sequence[Any]]:
        part = blocks[some.start : some.stop]
        return {"input_ids": part, "attention_mask": [[1] * len(one) for one in part], "labels": part}

    return encode(len(blocks), columns)


def _padded(rows: DatasetRows, spec: RunSpec, tokenizer: Any, longest: int) -> Items:
    """A sample per text, cut at `longest` tokens; the prompt before it, where there is one, is not learned."""
    texts, end = _texts(rows, spec), _ends(tokenizer)
    prompt = spec.column("prompt")
    prompts = check_texts(rows, prompt, "prompt") if prompt is not None else [""] * len(texts)

    def columns(some: range) -> Mapping[str, Sequence[Any]]:
        heads = tokenizer(list(prompts[some.start : some.stop]), add_special_tokens=False, verbose=False).input_ids
        tails = tokenizer(list(texts[some.start : some.stop]), add_special_tokens=False, verbose=False).input_ids
        pairs = [(head, [*tail, *end]) for head, tail in zip(heads, tails, strict=True)]
        ids = [(head + tail)[:longest] for head, tail in pairs]
        marks = [([IGNORED] * len(head) + tail)[:longest] for head, tail in pairs]
        for at, row in zip(some, marks, strict=True):
            if all(mark == IGNORED for mark in row):
                message = f"{rows.where(at)}: the prompt alone fills the {longest} tokens of a sample"
                raise DataError(message, hint="shorten it, or raise the `max` of `data.seq_len`")
        return {"input_ids": ids, "attention_mask": [[1] * len(one) for one in ids], "labels": marks}

    return encode(len(texts), columns)


def _evaluate(model: Module, items: Items, batch_size: int, *, collate: Any) -> Evaluation:
    """Loss per token, and perplexity: e to that. Tokens are weighed alike, whatever batch they are in."""
    from torch.nn.functional import cross_entropy

    loss, count = 0.0, 0
    for _, batch, output in answers(model, items, batch_size, collate):
        labels = batch["labels"][:, 1:].reshape(-1)
        logits = output.logits[:, :-1].reshape(-1, output.logits.shape[-1]).float()
        loss += float(cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum"))
        count += int((labels != IGNORED).sum())
    return Evaluation(metrics=_figures(loss, count), samples=len(items))


def _figures(loss: float, count: int) -> Mapping[str, float]:
    mean = loss / max(1, count)
    return {"loss_per_token": mean, "perplexity": math.exp(min(mean, 700.0))}


def _baseline(train: Items, judged: Items, vocabulary: int) -> Evaluation:
    """Perplexity of each token's frequency in train, one added to every count."""
    seen: Counter[int] = Counter()
    for at in range(len(train)):
        seen.update(train[at]["input_ids"])
    total = sum(seen.values()) + vocabulary
    loss, count = 0.0, 0
    for at in range(len(judged)):
        for mark in judged[at]["labels"][1:]:
            if mark != IGNORED:
                loss -= math.log((seen[mark] + 1) / total)
                count += 1
    found = _figures(loss, count)
    return Evaluation(metrics={f"token_frequency_{name}": value for name, value in found.items()}, samples=len(judged))


def _save(model: Module, folder: Path, *, tokenizer: Any) -> None:
    save_model(model, tokenizer, folder)
