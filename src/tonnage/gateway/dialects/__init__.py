"""What clients speak and what upstreams speak, and the way from one to the other."""
