"""The end of a process, as far as a test can play it in its own."""


class Killed(BaseException):
    """Stands for kill -9: nothing of ours catches it."""
