"""What every reader of the web shares: clients, what may pass and what does not, waits, addresses without secrets."""
