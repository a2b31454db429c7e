"""Several workloads bought together: the portfolio file, read and checked, as frozen values."""
