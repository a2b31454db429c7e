"""One database of what happened: runs and their events, measurements, plans, spend. Folders of runs are the truth.

    with open_store("sqlite:////home/me/.local/share/tonnage/tonnage.db") as store:
        store.index_run(folder)
        store.add_measurements(rows)

Names load on first use: SQLAlchemy is imported when a store is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.store.database import StoreError
    from tonnage.store.rows import PlanRow, RunRow, SpendRow
    from tonnage.store.store import Store, open_store

_HOME: Final = {
    "PlanRow": "rows",
    "RunRow": "rows",
    "SpendRow": "rows",
    "Store": "store",
    "StoreError": "database",
    "open_store": "store",
}

__all__ = ["PlanRow", "RunRow", "SpendRow", "Store", "StoreError", "open_store"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
