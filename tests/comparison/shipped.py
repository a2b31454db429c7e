"""The shipped examples, each compared once for all the tests of a process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tonnage import api
from tonnage.comparison.comparing import Comparison

EXAMPLES = Path(__file__).parents[2] / "examples" / "compare"
COMPARED = sorted(
    path.name.removesuffix(".tonnage.yaml") for path in EXAMPLES.glob("*.yaml") if "kind: compare" in path.read_text()
)


@lru_cache
def compared_example(name: str) -> Comparison:
    """An example of `examples/compare`, by its name without `.tonnage.yaml`."""
    return api.compare(EXAMPLES / f"{name}.tonnage.yaml", as_of="2026-11-20")
