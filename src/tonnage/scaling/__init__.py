"""Replicas that follow their load."""
