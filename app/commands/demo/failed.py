"""What makes a demonstration, or a figure, worthless."""

__all__ = ["Failed"]


class Failed(Exception):
    """Something went wrong, so that a figure would mean nothing; the message says what."""
