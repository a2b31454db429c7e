"""Engines that serve models: their commands, and replicas as processes."""
