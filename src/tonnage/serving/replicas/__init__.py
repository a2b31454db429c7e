"""Replicas of any engine as processes here: a balancer before them, a loop that starts and drains them."""
