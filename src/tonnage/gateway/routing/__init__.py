"""Which deployment gets a request: what each is expected to do, whether it is well, in which order they are tried."""
