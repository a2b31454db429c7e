"""Which offers a plan may consider, on which platforms, within which quotas, and what spot does to them."""
