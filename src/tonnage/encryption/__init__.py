"""Encryption: streams that are sealed whole, small values under data keys, and where a key must not lie."""
