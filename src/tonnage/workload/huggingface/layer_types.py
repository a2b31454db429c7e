"""Which layers of a decoder look at all tokens and which through a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.workload.huggingface.reader import ConfigReader, shown

FULL, WINDOWED = "full_attention", ("sliding_attention", "chunked_attention")


def read_windows(
    config: ConfigReader, *, layers: int, windowed: Callable[[int], bool], window_key: str = "sliding_window"
) -> dict[str, Any]:
    """The window and how many layers go without: by `layer_types`, else by the family's rule.

    `windowed` says so of a layer counted from 0. A null or missing window is none.
    """
    window = config.window(window_key)
    kinds = _layer_types(config, layers) if config.has("layer_types") else None
    full = kinds.count(FULL) if kinds else sum(not windowed(layer) for layer in range(layers))
    if not window or full == layers:
        return {"sliding_window": 0, "full_layers": 0}
    return {"sliding_window": window, "full_layers": full}


def every(period: int) -> Callable[[int], bool]:
    """Windowed but for the last of every `period` layers."""
    return lambda layer: (layer + 1) % period != 0


def _layer_types(config: ConfigReader, layers: int) -> list[str]:
    kinds = config.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.error("layer_types", f"{shown(kinds)} is not a list with one kind for each of {layers} layers")
    for kind in kinds:
        if kind != FULL and kind not in WINDOWED:
            raise config.error(
                "layer_types", f"{shown(kind)} is not understood; expected {FULL} or {' or '.join(WINDOWED)}"
            )
    return kinds
