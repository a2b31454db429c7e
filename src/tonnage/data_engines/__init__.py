"""Engines that prepare rows: DuckDB on one machine, Spark on many. Adapters; each is imported when it is used."""
