"""Shared by the source tests: the packaged catalog, loaded once."""

from __future__ import annotations

import pytest

from tonnage.catalog import Catalog, load_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()
