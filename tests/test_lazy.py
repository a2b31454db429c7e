"""Packages whose names load their module on first use."""

from __future__ import annotations

from importlib import import_module
from inspect import ismodule
from pkgutil import iter_modules

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


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_a_module_s_too(package: str) -> None:
    """Importing a module sets its name on the package: a function of that name would be gone by then."""
    module = import_module(package)
    modules = {one.name for one in iter_modules(module.__path__)}
    assert [name for name in module.__all__ if name in modules and not ismodule(getattr(module, name))] == []
