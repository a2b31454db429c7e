"""How much work it is to have an engine: seconds of its set-up, lines of its adapter."""

from __future__ import annotations

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEase:
    """`environment`: the name of its own, or None: that of tonnage. `setup_s`: what `tonnage bench setup` took for it,
    download and trial; None: not recorded, or no such environment. `adapter_lines`: lines on which a statement of its
    adapter begins, with those modules that it shares with others."""

    environment: str | None
    setup_s: float | None
    adapter_lines: int
