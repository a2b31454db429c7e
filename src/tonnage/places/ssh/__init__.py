"""Runs on machines reached by SSH: the OpenSSH client carries requests to a small program sent along with each."""
