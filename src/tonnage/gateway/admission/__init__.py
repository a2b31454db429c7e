"""Requests that wait for a place where a limit of requests at a time is reached."""
