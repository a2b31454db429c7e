"""/v1/files and /v1/batches behind the gateway: what clients upload, and what was made of it, on the disk."""
