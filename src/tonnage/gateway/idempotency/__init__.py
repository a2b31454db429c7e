"""Requests with an `Idempotency-Key`: answered once, repeated from the store."""
