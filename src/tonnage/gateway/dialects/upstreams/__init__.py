"""What upstreams speak: a request is written in it, an answer and a stream are read from it."""
