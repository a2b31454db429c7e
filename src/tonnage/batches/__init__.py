"""Batches carried through a service: every row answered once, whatever is killed on the way."""
