"""The error that ends a demonstration or a benchmark."""

__all__ = ["Failed"]


class Failed(Exception):
    """Something went wrong that makes the figures worthless; the message says what."""
