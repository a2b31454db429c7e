"""Rows of a run: read from files, data sets and databases, checked, and split."""
