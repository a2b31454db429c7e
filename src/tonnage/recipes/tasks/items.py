"""Tokenised samples: kept as Arrow columns, handed out one by one, padded into batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.recipes.task import Item, Items

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

ROWS_AT_ONCE: Final = 1000
IGNORED: Final = -100  # a label the loss leaves out, in torch and transformers
WIDTH_MULTIPLE: Final = 8  # attention kernels want lengths that are one
MODEL_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class Encoded:
    """Samples in Arrow memory. What one encoding gave is a piece: rows become windows, so pieces differ in length."""

    def __init__(self, pieces: Sequence[Mapping[str, Any]]) -> None:
        self.pieces = tuple(pieces)  # column -> Arrow array
        counts = [len(next(iter(piece.values()))) for piece in self.pieces]
        self._starts = [0, *accumulate(counts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, position: int) -> Item:
        if not 0 <= position < len(self):
            raise IndexError(f"sample {position} of {len(self)}")
        number = bisect_right(self._starts, position) - 1
        at = position - self._starts[number]
        return {name: _value(column[at]) for name, column in self.pieces[number].items()}


def _value(cell: Any) -> Any:
    """A cell as Python has it. Lists of numbers go by NumPy: number by number takes 40 times as long."""
    import pyarrow

    if isinstance(cell, pyarrow.ListScalar) and pyarrow.types.is_integer(cell.type.value_type) and cell.is_valid:
        numbers = cell.values
        return numbers.to_pylist() if numbers.null_count else numbers.to_numpy().tolist()
    return cell.as_py()


def encode(count: int, encode_rows: Callable[[range], Mapping[str, Sequence[Any]]]) -> Items:
    """Samples of `count` rows, encoded some at a time; the columns stay in Arrow memory."""
    import pyarrow

    pieces = []
    for start in range(0, count, ROWS_AT_ONCE):
        columns = encode_rows(range(start, min(start + ROWS_AT_ONCE, count)))
        pieces.append({name: pyarrow.array(values) for name, values in columns.items()})
    return Encoded(pieces)


def pad_widths(compiled: bool, longest: int) -> tuple[int, ...]:
    """Widths that batches of a compiled model are padded to: a compiler makes new code for each. None for others.

    >>> pad_widths(True, 500)
    (64, 128, 256, 500)
    """
    if not compiled:
        return ()
    eighths = (WIDTH_MULTIPLE * ceil(longest / share / WIDTH_MULTIPLE) for share in (8, 4, 2))
    return (*sorted({width for width in eighths if width < longest}), longest)


def pad(
    items: Sequence[Item], tokenizer: Any, *, labels: int | None = None, widths: Sequence[int] = ()
) -> dict[str, Tensor]:
    """A batch of the model's inputs, padded to the longest, or the next of `widths`; `labels` is what per-token labels
    are padded with."""
    import torch

    longest = max(len(item["input_ids"]) for item in items)
    room = next((width for width in widths if width >= longest), longest)
    fills = {"input_ids": tokenizer.pad_token_id, "attention_mask": 0, "token_type_ids": tokenizer.pad_token_type_id}
    if labels is not None:
        fills["labels"] = labels
    known = [name for name in fills if name in items[0]]
    left = tokenizer.padding_side == "left"
    batch = {name: _padded([item[name] for item in items], room, fills[name], left=left) for name in known}
    if "attention_mask" not in batch:
        batch["attention_mask"] = _padded([[1] * len(item["input_ids"]) for item in items], room, 0, left=left)
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def _padded(rows: Sequence[Sequence[int]], width: int, fill: int, *, left: bool) -> NDArray[np.int64]:
    """Rows of numbers as one array. By NumPy, since the thread that trains waits for this one's Python meanwhile: a
    tokenizer's own `pad` takes five times as long."""
    found = np.full((len(rows), width), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        where = slice(width - len(row), None) if left else slice(len(row))
        found[number, where] = row
    return found


def count_tokens(batch: Mapping[str, Tensor]) -> int:
    """Tokens that are no padding."""
    return int(batch["attention_mask"].sum())


def longest_first(items: Items) -> Sequence[int]:
    """Positions by length, longest first."""
    lengths = lengths_of(items)
    return sorted(range(len(items)), key=lambda at: -lengths[at])


def lengths_of(items: Items) -> list[int]:
    """Tokens of each sample."""
    if not isinstance(items, Encoded):
        return [len(items[at]["input_ids"]) for at in range(len(items))]
    import pyarrow.compute

    return [
        length for piece in items.pieces for length in pyarrow.compute.list_value_length(piece["input_ids"]).to_pylist()
    ]


def answers(
    model: Module,
    items: Items,
    batch_size: int,
    collate: Callable[[Sequence[Item]], dict[str, Tensor]],
    *,
    order: Sequence[int] | None = None,
) -> Iterator[tuple[Sequence[int], dict[str, Tensor], Any]]:
    """(positions, batch on the model's device, output) over all samples, alike in length so that little is padded
    (`order`: in this one).

    The model is as it was afterwards: in training where it was in training.
    """
    import torch

    device = next(model.parameters()).device
    order = longest_first(items) if order is None else order
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


def of_texts(encoded: Sequence[Items], collate: Callable[[Sequence[Item]], dict[str, Tensor]]) -> dict[str, Any]:
    """What `Prepared` holds of encoded texts, the same for every task: training, validation and test items (the last
    where there are three), and how they are counted and batched."""
    return {
        "train": encoded[0], "validation": encoded[1], "test": encoded[2] if len(encoded) > 2 else None,
        "collate": collate, "longest": longest_first, "tokens": count_tokens,
    }  # fmt: skip
