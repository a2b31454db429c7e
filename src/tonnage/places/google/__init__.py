"""Google Cloud as a place: Compute Engine instances."""
