"""Names of a package that load their module on first use: a plan needs no module of a report or a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package. `homes`: a module -> its names, with spaces between. A module without a dot in
    front of its name stands in full; an empty text makes the module itself the name.

    >>> lazy_names("tonnage", {".units": "GIB"})("GIB")
    1073741824
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in home_of:
            return getattr(import_module(home_of[name], package), name)
        if not homes.get(f".{name}", "no module"):
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
