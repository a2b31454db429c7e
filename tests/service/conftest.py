"""The catalog and the workloads of the planning tests."""

from __future__ import annotations

from ..planning.conftest import catalog, make_serve, make_train  # noqa: F401  (fixtures)
