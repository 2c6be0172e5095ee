"""The error that ends a demonstration or a benchmark."""

__all__ = ["Failed"]


class Failed(Exception):
    """A failure that makes the figures worthless; the message names it."""
