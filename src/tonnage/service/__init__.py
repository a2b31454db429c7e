"""What a service really costs: a fleet under a daily curve, autoscaled, beside a price per token; and a spot queue."""
