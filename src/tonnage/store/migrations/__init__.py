"""How each version of the database becomes the next. Alembic reads `env.py` and `versions/`."""
