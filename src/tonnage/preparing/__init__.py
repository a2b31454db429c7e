"""Preparation of rows as values: the file that asks for it, its steps, and the SQL each becomes."""
