"""Budgets of teams: the file that states them, their periods, and the book of what runs have reserved and spent."""
