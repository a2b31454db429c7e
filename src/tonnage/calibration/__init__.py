"""Measured rows -> predicted beside measured, fitted efficiencies, intervals."""
