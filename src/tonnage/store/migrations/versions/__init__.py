"""One module a version, oldest first. What is released here is never changed again."""
