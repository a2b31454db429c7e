"""Runs as jobs of a Ray cluster that is reached by the address of its dashboard alone."""
