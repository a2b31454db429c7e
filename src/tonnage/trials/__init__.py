"""Hyper-parameters that are tried: what each may be, and the study that keeps what was tried."""
