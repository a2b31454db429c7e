"""Bills of providers and clouds as lines of one kind, read from the files that they export."""
