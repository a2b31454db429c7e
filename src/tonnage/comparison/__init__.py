"""Platforms compared, and the claims of a document checked against catalog, prices and arithmetic."""
