"""Batches of tokenised samples: padded as the tokenizer itself would pad them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.tasks.items import pad

ROWS = [[5, 6, 7], [8], [9, 10, 11, 12, 13]]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("names", [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")])
def test_padded_as_the_tokenizer_pads(tiny_model: Callable[..., Path], side: str, names: tuple[str, ...]) -> None:
    """Numbers, mask and segments, on either side; a mask that no sample has is made."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model("bert", ["a b c"]), padding_side=side)
    values: dict[str, Callable[[list[int]], list[int]]] = {
        "input_ids": list, "attention_mask": lambda row: [1] * len(row), "token_type_ids": lambda row: [0] * len(row),
    }  # fmt: skip
    items = [{name: values[name](row) for name in names} for row in ROWS]
    expected = tokenizer.pad(items, padding="max_length", max_length=8, return_tensors="pt")
    found = pad(items, tokenizer, widths=(8, 16))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert found[name].tolist() == value.tolist()


def test_labels_are_padded_with_their_own(tiny_model: Callable[..., Path]) -> None:
    """On the tokenizer's side, to the width of the longest."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model("bert", ["a b c"]), padding_side="left")
    found = pad([{"input_ids": row, "labels": row} for row in ROWS[:2]], tokenizer, labels=-100)
    assert found["labels"].tolist() == [[5, 6, 7], [-100, -100, 8]]
