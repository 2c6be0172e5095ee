"""A pause of a message flow or of a standing query, by a rule of admission control."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["Pause"]


class Pause(NamedTuple):
    """A pause; it ends automatically.

    Attributes:
        version: The version of the rules.
        rule: The number of the rule among them.
        seconds: Its duration; when read back, the remaining time.
    """

    version: int
    rule: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        until = datetime.now(UTC) + timedelta(seconds=self.seconds)
        return {**self._asdict(), "until": until.isoformat()}
