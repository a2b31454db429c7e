"""Container images that carry out a workload: what goes in, the Containerfile, its builders, its bill of materials."""
