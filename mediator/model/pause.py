"""A pause of a message flow or of a standing query, by a rule of admission control."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["Pause"]


class Pause(NamedTuple):
    """A pause; it ends by itself.

    Attributes:
        version: Of the rules.
        rule: Its number among them.
        seconds: For how long; of one that was read, what is left.
    """

    version: int
    rule: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        until = datetime.now(UTC) + timedelta(seconds=self.seconds)
        return {**self._asdict(), "until": until.isoformat()}
