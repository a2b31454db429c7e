"""A pretended cluster: an API server that is held to recorded verdicts of a real one, and its scenarios replayed."""
