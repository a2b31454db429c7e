"""Names of a package that load their module on first use: a plan needs no module of a report or a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package. `homes`: a module -> its names. A module without a dot in front of its name is
    named in full; one without names is itself what its name gives.

    >>> lazy_names("tonnage", {".units": ("GIB",)})("GIB")
    1073741824
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if not homes.get(f".{name}", (name,)):
            return import_module(f".{name}", package)
        if name in home_of:
            return getattr(import_module(home_of[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
