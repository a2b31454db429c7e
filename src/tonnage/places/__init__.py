"""Places where runs are carried out: their configuration, one contract, an adapter for each kind."""
