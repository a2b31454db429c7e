"""Checks of what is asked and answered: what they find, and what is done then."""
