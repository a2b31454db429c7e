"""Names of a package that load their module on first use: a plan needs no module of a report or a replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

_IMPORT: Final = re.compile(r"^    from (\S+) import (?:\(([^)]+)\)|(.+))$", re.MULTILINE)


def lazy_names(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: each name comes from where its `if TYPE_CHECKING:` imports it.

    What readers and type checkers see is all there is: no second list of names can differ from it. (lazy-loader, of
    Scientific Python, reads its stubs so.) The text is read when the first name is asked for.

    >>> lazy_names("tonnage.pricing")("Ledger").__module__
    'tonnage.pricing.ledger'
    """

    def load(name: str) -> Any:
        homes = _homes(package)
        home = homes.get(name) or (homes.get("*") if name in import_module(package).__all__ else None)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f".{name}", package) if home == package else getattr(import_module(home), name)

    return load


@cache
def _homes(package: str) -> dict[str, str]:
    """The module of each name that the package imports in an indented block; of `*` too."""
    text = import_module(package).__spec__.loader.get_source(package)  # type: ignore[union-attr]  # loaded from text
    return {
        name.strip(): home
        for home, several, one in _IMPORT.findall(text)
        for name in (several or one).split(",")
        if name.strip()
    }
