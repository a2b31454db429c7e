"""What to switch on for a model on a device: switches, their predicted gain, what was measured, quality."""
