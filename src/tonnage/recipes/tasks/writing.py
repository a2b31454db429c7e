"""An encoder-decoder writes: the likeliest token, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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
