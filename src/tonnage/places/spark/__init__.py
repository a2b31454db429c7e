"""Runs as applications of a Spark standalone cluster that is reached by the address of its master."""
