"""Measure: this machine for a device profile, services under load, engines side by side (results: `side_by_side`).

Adapters; torch is imported when something is measured.
"""
