"""Requests to a service, as values: when they are due, how long they are, what came back, what a batch has done."""
