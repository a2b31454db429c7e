"""Fakes for tests, ours and those of users: they carry a plan through without an account, a network or a GPU."""

from tonnage.testing.runner import FakeRunner, FakeSource
from tonnage.testing.runs import run_spec, write_run

__all__ = ["FakeRunner", "FakeSource", "run_spec", "write_run"]
