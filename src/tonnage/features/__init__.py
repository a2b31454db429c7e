"""How rows of a table become the numbers that a model takes, and its outputs the answers that are written."""
