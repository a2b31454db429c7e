"""What clients speak: a request is read from it, an answer and a stream are written in it."""
