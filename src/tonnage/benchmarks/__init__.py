"""Measure: this machine for a device profile. Adapters; torch is imported when something is measured."""
