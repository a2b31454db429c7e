"""Databricks as a place: one-time runs of the Jobs API on a cluster made for each."""
