"""A longer grace period for the requests under way in a service process."""

from __future__ import annotations

from app.service import serving

__all__ = ["finish_late"]


def finish_late() -> None:
    """Give requests under way two minutes after the service stops accepting."""
    serving.FINISHED_WITHIN_S = 120
