"""Measure: this machine for a device profile, services under load, engines of training one beside the other.

These are adapters, which run programs and read clocks; torch is imported when something is measured. The values that a
bench of engines returns, and what is computed from them, are in `tonnage.side_by_side`.
"""
