"""A home in one file: written, verified by its own hashes, sealed with a key, restored whole or not at all."""
