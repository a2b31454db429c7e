"""Rules over metrics: when they fire, what they do then, and what they would have done in the past."""
