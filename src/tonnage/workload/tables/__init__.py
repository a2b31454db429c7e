"""Tables that users hand in, as CSV or JSON: every cell checked, every error with its line and column."""
