"""One database of what happened: runs and their events, measurements, plans, spend. Folders of runs are the truth.

    with open_store("sqlite:////home/me/.local/share/tonnage/tonnage.db") as store:
        store.index_run(folder)
        store.add_measurements(rows)

Names load on first use: SQLAlchemy is imported when a store is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.store.database import StoreError
    from tonnage.store.rows import PlanRow, RunRow, SpendRow
    from tonnage.store.store import Store, open_store

__all__ = ["PlanRow", "RunRow", "SpendRow", "Store", "StoreError", "open_store"]
__getattr__ = lazy_names(__name__)
