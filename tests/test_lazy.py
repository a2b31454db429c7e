"""Packages whose names load their module on first use."""

from __future__ import annotations

from importlib import import_module

import pytest

PACKAGES = ("tonnage", *(f"tonnage.{name}" for name in ("api", "reports", "spot_instances", "store", "workload")))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_loads(package: str) -> None:
    """What a package lists as public is there; another name is an attribute error that says whose."""
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = module.no_such_name
