"""How rows of a table and pictures become the numbers that a model takes, and its outputs the answers written."""
