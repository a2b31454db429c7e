"""The command line. `main` is its one entry point: it maps every outcome to an exit code."""

from tonnage.cli.running import main, run

__all__ = ["main", "run"]
