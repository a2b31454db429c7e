"""Which deployment gets a request: what each is expected to do, which of them is well, in which order they are tried."""
