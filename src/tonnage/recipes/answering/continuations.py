"""Text that a causal language model writes after a prompt, the likeliest token each time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.errors import DataError, InputError
from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, text_of
from tonnage.recipes.trained import TrainedModel


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:
    """`text`, its `tokens`, and whether it `ended` by itself rather than at the most tokens asked for."""
    room = trained.longest - max_new_tokens
    if room < 1:
        hint = f"the model takes {trained.longest} tokens in all"
        raise InputError(f"{max_new_tokens} new tokens leave no room for a prompt", hint=hint)
    trained.tokenizer.padding_side = "left"
    answer = partial(_answer, trained, room, max_new_tokens)
    return Answerer(answer=answer, keys=frozenset({"text", "tokens", "ended"}), batches=4)


def _answer(
    trained: TrainedModel, room: int, max_new_tokens: int, rows: Sequence[PlacedRow], batch: int
) -> list[Answer]:
    role = "text" if trained.spec.column("prompt") is None else "prompt"
    column = trained.spec.column(role) or role
    prompts = trained.tokenizer(
        [text_of(row, column, role) for row in rows], add_special_tokens=False, verbose=False
    ).input_ids
    for row, ids in zip(rows, prompts, strict=True):
        if not ids:
            raise DataError(f"{row[0]}: '{column}' ({role}) is empty", hint="remove the row, or write a prompt")
    order = sorted(range(len(rows)), key=lambda at: -len(prompts[at]))
    found: list[Answer] = [{} for _ in rows]
    for start in range(0, len(order), batch):
        some = order[start : start + batch]
        written = _write(trained, [prompts[at][-room:] for at in some], max_new_tokens)
        for at, answer in zip(some, written, strict=True):
            found[at] = answer
    return found


def _write(trained: TrainedModel, prompts: Sequence[list[int]], max_new_tokens: int) -> list[Answer]:
    import torch

    tokenizer, model = trained.tokenizer, trained.model
    inputs = tokenizer.pad({"input_ids": prompts}, padding=True, return_tensors="pt").to(model.device)
    ends = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    with torch.inference_mode():
        found = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=ends,
        )
    new = found[:, inputs["input_ids"].shape[1] :].tolist()
    return [_said(trained, ids, ends) for ids in new]


def _said(trained: TrainedModel, ids: list[int], ends: int | None) -> Answer:
    ended = ends in ids
    own = ids[: ids.index(ends)] if ended and ends is not None else ids
    return {
        "text": trained.tokenizer.decode(own, skip_special_tokens=True),
        "tokens": len(own),
        "ended": ended,
    }
