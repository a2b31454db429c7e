"""Google Cloud's APIs as they answer: storage, Compute Engine, what `check` asks."""
