"""The data path: a request read, held, sent, passed back and settled."""
