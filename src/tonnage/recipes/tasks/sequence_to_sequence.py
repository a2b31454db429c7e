"""Texts written from texts by an encoder-decoder (T5, BART): summaries, translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError, InputError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Item, Items, Prepared
from tonnage.recipes.tasks.items import IGNORED, answers, encode, of_texts, pad, pad_widths
from tonnage.recipes.tasks.labels import check_texts
from tonnage.recipes.tasks.metrics import writing_metrics
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input, save_model, shape_of
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `source`, what is read, and `target`, what is to be written. Both are cut at the longest length."""
    splits = read(spec)
    tokenizer = load_tokenizer(spec)
    model = load_model(spec, "AutoModelForSeq2SeqLM", padding=tokenizer.pad_token_id)
    start, end = ends_of(model, tokenizer)
    longest = longest_input(spec, tokenizer, model)
    parts = [_texts(rows, spec) for rows in splits]
    encoded = [_encode(*part, tokenizer, longest, end) for part in parts]
    collate = partial(_collate, tokenizer=tokenizer, widths=pad_widths(spec.training.compile, longest))
    writer = partial(write, start=start, end=end, most=longest)
    return Prepared(
        model=model,
        **of_texts(encoded, collate),
        evaluate=partial(_evaluate, collate=collate, writer=writer, tokenizer=tokenizer),
        save=partial(_save, tokenizer=tokenizer),
        baseline=partial(_baseline, *parts[-1]),
        shape=shape_of(model),
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return load_splits(spec.data, roles=("source", "target"), same=("source",))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on pairs of texts."""
    start, end = ends_of(trained.model, trained.tokenizer)
    items = _encode(*_texts(rows, trained.spec), trained.tokenizer, trained.longest, end)
    collate = partial(_collate, tokenizer=trained.tokenizer)
    writer = partial(write, start=start, end=end, most=trained.longest)
    return _evaluate(trained.model, items, batch, collate=collate, writer=writer, tokenizer=trained.tokenizer)


def ends_of(model: Any, tokenizer: Any) -> tuple[int, int]:
    """The tokens a written text begins and ends with. InputError where model or tokenizer does not say."""
    start, end = model.config.decoder_start_token_id, tokenizer.eos_token_id
    end = tokenizer.sep_token_id if end is None else end
    for value, name in ((start, "`decoder_start_token_id` in config.json"), (end, "an `eos_token` of the tokenizer")):
        if value is None:
            raise InputError("the tokens that begin and end an output are not set", hint=f"add {name}")
    return int(start), int(end)


def write(model: Any, batch: Mapping[str, Tensor], *, start: int, end: int, most: int) -> list[list[int]]:
    """The tokens written for each row, without `end`; at most so many.

    By passes through the whole model, as in training, so that one that is shared out over processes is gathered; all
    processes then write to the last token, since none may end before another.
    """
    import torch
    from torch.distributed.fsdp import FSDPModule

    inputs, together = {name: batch[name] for name in ("input_ids", "attention_mask")}, isinstance(model, FSDPModule)
    count = len(inputs["input_ids"])
    newest = torch.full((count, 1), start, device=inputs["input_ids"].device)
    output = model(**inputs, decoder_input_ids=newest, use_cache=True)
    seen = (output.encoder_last_hidden_state,)
    written, ended = [], torch.zeros(count, dtype=torch.bool, device=newest.device)
    for number in range(most):
        newest = output.logits[:, -1:].argmax(dim=-1)
        ended |= newest[:, 0] == end
        written.append(newest.masked_fill(ended[:, None], end))
        if number + 1 == most or (not together and bool(ended.all())):
            break
        output = model(
            attention_mask=inputs["attention_mask"], encoder_outputs=seen, decoder_input_ids=newest,
            past_key_values=output.past_key_values, use_cache=True,
        )  # fmt: skip
    return [[token for token in row if token != end] for row in torch.cat(written, dim=1).tolist()]


def _texts(rows: DatasetRows, spec: RunSpec) -> tuple[Sequence[str], Sequence[str]]:
    source = check_texts(rows, spec.column("source") or "source", "source")
    target = check_texts(rows, spec.column("target") or "target", "target")
    for position, texts in enumerate(zip(source, target, strict=True)):
        if not all(text.strip() for text in texts):
            raise DataError(f"{rows.where(position)}: an empty text", hint="remove the row")
    return source, target


def _encode(source: Sequence[str], target: Sequence[str], tokenizer: Any, longest: int, end: int) -> Items:
    def ended(texts: Sequence[str]) -> list[list[int]]:
        rows = tokenizer(text_target=list(texts), truncation=True, max_length=longest)["input_ids"]
        return [row if row[-1] == end else [*row[: longest - 1], end] for row in rows]

    def columns(some: range) -> Mapping[str, Sequence[Any]]:
        encoded = tokenizer(list(source[some.start : some.stop]), truncation=True, max_length=longest)
        kept = {name: encoded[name] for name in ("input_ids", "attention_mask")}
        return {**kept, "labels": ended(target[some.start : some.stop])}

    return encode(len(source), columns)


def _collate(items: Sequence[Item], *, tokenizer: Any, widths: Sequence[int] = ()) -> dict[str, Tensor]:
    """Sources padded to the longest of them, targets to theirs; the model shifts the targets itself."""
    import torch

    longest = max(len(item["labels"]) for item in items)
    room = next((width for width in widths if width >= longest), longest)
    labels = [[*item["labels"], *[IGNORED] * (room - len(item["labels"]))] for item in items]
    return {**pad(items, tokenizer, widths=widths), "labels": torch.tensor(labels)}


def _evaluate(model: Module, items: Items, batch_size: int, *, collate: Any, writer: Any, tokenizer: Any) -> Evaluation:
    """What the model writes beside what it should have written, and its loss under teacher forcing."""
    import torch
    from torch.nn.functional import cross_entropy

    loss, count = 0.0, 0
    wanted: list[str] = []
    said: list[str] = []
    for _, batch, output in answers(model, items, batch_size, collate):
        labels = batch["labels"]
        loss += float(cross_entropy(output.logits.float().flatten(0, 1), labels.flatten(), reduction="sum"))
        count += int(labels.ne(IGNORED).sum())
        with torch.no_grad():
            written = writer(model, batch)
        right = [[token for token in row if token != IGNORED] for row in labels.tolist()]
        said += tokenizer.batch_decode(written, skip_special_tokens=True)
        wanted += tokenizer.batch_decode(right, skip_special_tokens=True)
    mean = loss / max(1, count)
    figures = {"loss_per_token": mean, "perplexity": math.exp(min(mean, 700.0))}
    return Evaluation(metrics={**writing_metrics(wanted, said), **figures}, samples=len(wanted))


def _save(model: Module, folder: Path, *, tokenizer: Any) -> None:
    save_model(model, tokenizer, folder)


def _baseline(source: Sequence[str], target: Sequence[str]) -> Evaluation:
    """What is reached by saying the source again."""
    found = writing_metrics(target, source)
    return Evaluation(metrics={f"copied_source_{name}": value for name, value in found.items()}, samples=len(target))
