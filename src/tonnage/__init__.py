"""Tonnage: which hardware, on which platform, bought how, and will it hold?

`plan`, `size`, `compare`, `diff`, `load_workload`, `load_catalog` and the module `errors`; each loads on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage import errors
    from tonnage.api import Explanation, PlanResult, SizeResult, compare, load_catalog, load_workload, plan, size
    from tonnage.diffing import diff

__version__: Final = "0.1.0"
__all__ = [
    "Explanation",
    "PlanResult",
    "SizeResult",
    "__version__",
    "compare",
    "diff",
    "errors",
    "load_catalog",
    "load_workload",
    "plan",
    "size",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("tonnage.errors")
    if name == "diff":
        return import_module("tonnage.diffing").diff
    if name in __all__:
        return getattr(import_module("tonnage.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
