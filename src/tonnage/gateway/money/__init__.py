"""What a request may cost, what it did cost, and the allowances that both are taken from. Integers throughout."""
