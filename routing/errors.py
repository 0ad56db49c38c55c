"""What a router may raise."""


class NoCandidate(Exception):
    """No decode replica can take the request; the message says why, for people."""
