"""The ledger beside the bills of providers: where they differ, by how much, and what can be the reason."""
