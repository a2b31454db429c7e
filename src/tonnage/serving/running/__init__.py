"""Services that run: what they left written down of themselves, and what they cost now."""
