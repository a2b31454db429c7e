"""A run of one place as another's: what changes, what has to be copied and for how much, the steps in their order."""
