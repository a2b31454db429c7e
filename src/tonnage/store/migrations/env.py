"""Run by Alembic for every command, on the connection (and in the transaction) that `database.py` gives it."""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Apply the migrations that the command asks for."""
    from tonnage.store.schema import METADATA

    context.configure(
        connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True
    )
    context.run_migrations()


if __name__ == "env_py":  # as Alembic names it; imported otherwise, the module does nothing
    run()
