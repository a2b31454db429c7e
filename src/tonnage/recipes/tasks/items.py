"""Tokenised samples: kept as Arrow columns, handed out one by one, padded into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tonnage.recipes.task import Item, Items

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

ROWS_AT_ONCE: Final = 1000
IGNORED: Final = -100  # a label the loss leaves out, in torch and transformers
MODEL_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})


def encode(count: int, encode_rows: Callable[[range], Mapping[str, Sequence[Any]]]) -> Items:
    """Samples of `count` rows, encoded some at a time; the columns stay in Arrow memory."""
    import datasets
    import pyarrow

    batches = []
    for start in range(0, count, ROWS_AT_ONCE):
        columns = encode_rows(range(start, min(start + ROWS_AT_ONCE, count)))
        batches.append(pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()}))
    table = pyarrow.concat_tables(batches, promote_options="permissive")
    items: Items = datasets.Dataset(table)
    return items


def pad(items: Sequence[Item], tokenizer: Any, *, labels: int | None = None) -> dict[str, Tensor]:
    """A batch of the model's inputs, padded to the longest; `labels` is what per-token labels are padded with."""
    import torch

    inputs = [{key: value for key, value in item.items() if key in MODEL_INPUTS} for item in items]
    batch: dict[str, Tensor] = dict(tokenizer.pad(inputs, padding=True, return_tensors="pt"))
    if labels is not None:
        width = batch["input_ids"].shape[1]
        left = tokenizer.padding_side == "left"
        rows = [list(item["labels"]) for item in items]
        fills = [[labels] * (width - len(row)) for row in rows]
        batch["labels"] = torch.tensor(
            [fill + row if left else row + fill for row, fill in zip(rows, fills, strict=True)]
        )
    return batch


def count_tokens(batch: Mapping[str, Tensor]) -> int:
    """Tokens that are no padding."""
    return int(batch["attention_mask"].sum())


def longest_first(items: Items) -> Sequence[int]:
    """Positions by length, longest first."""
    lengths = lengths_of(items)
    return sorted(range(len(items)), key=lambda at: -lengths[at])


def lengths_of(items: Items) -> list[int]:
    """Tokens of each sample."""
    table = getattr(items, "data", None)
    if table is None or getattr(items, "_indices", None) is not None:
        return [len(items[at]["input_ids"]) for at in range(len(items))]
    import pyarrow.compute

    counted: list[int] = pyarrow.compute.list_value_length(table.column("input_ids")).to_pylist()
    return counted


def answers(
    model: Module, items: Items, batch_size: int, collate: Callable[[Sequence[Item]], dict[str, Tensor]]
) -> Iterator[tuple[Sequence[int], dict[str, Tensor], Any]]:
    """(positions, batch on the model's device, output) over all samples, alike in length so that little is padded.

    The model is as it was afterwards: in training where it was in training.
    """
    import torch

    device = next(model.parameters()).device
    order = longest_first(items)
    was_training = model.training
    model.eval()
    try:
        for start in range(0, len(order), batch_size):
            positions = order[start : start + batch_size]
            batch = {name: value.to(device) for name, value in collate([items[at] for at in positions]).items()}
            with torch.inference_mode():
                yield positions, batch, model(**batch)
    finally:
        model.train(was_training)
