"""Fakes for tests, ours and those of users: they carry a plan through without an account, a network or a GPU."""

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.testing.runner import FakeRunner, FakeSource
    from tonnage.testing.runs import run_spec, write_run

__all__ = ["FakeRunner", "FakeSource", "run_spec", "write_run"]
__getattr__ = lazy_names(__name__)
