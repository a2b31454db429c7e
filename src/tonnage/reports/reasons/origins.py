"""Words for how a figure of what a job needs was found."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.planning.reasons import origins as kinds
from tonnage.planning.reasons.origins import Origin
from tonnage.reports.reasons.document import reason_document


def origin_document(origin: Origin) -> dict[str, Any]:
    """The origin as JSON."""
    return reason_document(origin, origin_words(origin))


def origin_words(origin: Origin) -> str:
    """One phrase, without a capital or a full stop."""
    match origin:
        case kinds.FromShape():
            return "from the model's shape"
        case kinds.FromMethod(method=method):
            return f"method {method}"
        case kinds.WholeJob():
            return "forward and backward of the whole job, at the mean length"
        case kinds.WholeState():
            return "weights, gradients, optimizer, before any sharding"
        case kinds.KeptForBackward(recompute="full"):
            return "the same with full recomputation"
        case kinds.KeptForBackward(tokens=tokens):
            return f"kept for backward at {tokens:g} tokens, no recomputation"
        case kinds.StoredAs(format=name):
            return f"as {name}"
        case kinds.OneForward(tokens=tokens):
            return "one forward over an image" if tokens is None else f"one forward over {tokens:g} tokens"
        case kinds.AllLayers():
            return "keys and values of all layers"
        case kinds.AtLongest(tokens=tokens):
            return f"at the longest {tokens:g} tokens"
        case kinds.TableCells():
            return "rows x features"
        case _:
            assert_never(origin)
