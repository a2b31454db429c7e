"""Does it fit? One reading of memory and one margin, for plans and for judging measured rows alike.

A run fits where what it *needs* stays within the device less a margin. Needed is everything that must be there at once:
state, activations, logits, buffers, runtime. What a caching allocator holds beyond that while there is room
(fragmentation) shows on the device, but it is handed back before an allocation fails, so it does not decide.
Evidence: docs/decisions/what-fits.md.
"""

from __future__ import annotations

import numpy as np

from tonnage.sizing.estimates import Array


def room(capacity: float, margin_fraction: float) -> float:
    """What of a device a run may need, in the unit of `capacity`.

    >>> room(80.0, 0.05)
    76.0
    """
    return capacity * (1.0 - margin_fraction)


def fits(needed: float | Array, capacity: float | Array, margin_fraction: float) -> np.ndarray:
    """Whether what is needed stays within the device with the margin kept free; both in the same unit.

    >>> bool(fits(76.0, 80.0, 0.05)), bool(fits(76.1, 80.0, 0.05))
    (True, False)
    """
    return np.asarray(np.asarray(needed) <= np.asarray(capacity) * (1.0 - margin_fraction))


def holds(needed: float | Array, high_factor: float | Array, capacity: float | Array) -> np.ndarray:
    """Whether the upper end of what may be needed stays within the device. No margin besides: the interval is one.

    >>> bool(holds(60.0, 1.3, 80.0)), bool(holds(65.0, 1.3, 80.0))
    (True, False)
    """
    return np.asarray(np.asarray(needed) * np.asarray(high_factor) <= np.asarray(capacity))
