"""The changes of a class whose objects had owners once: those of that time are not for readers.

Until when objects had owners is told by the catalogue's clock, and when a change was made by the
clock of the system that holds it (docs/clocks.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from app.security.authorisation import Access
from mediator.access.model import Scope
from mediator.base.errors import Forbidden
from mediator.changes.document import time_of

__all__ = ["CLOCKS_DIFFER", "require_open", "was_made_after"]

CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""By how much the clocks of two machines are taken to differ at most."""


def require_open(access: Access, database: str, class_name: str) -> None:
    """Return if every change that is made to a class from now on may be shown.

    Whoever began to follow it earlier would miss changes: those that may be older than they say.

    Raises:
        Forbidden: Its objects had owners until a moment ago.
    """
    until = access.owned_until(database, class_name)
    if until is not None and datetime.now(UTC) <= until + 2 * CLOCKS_DIFFER:
        detail = (
            f"Objects of {class_name} had owners a moment ago: its changes are for administrators"
            f" of it. Ask again after {_text(until + 2 * CLOCKS_DIFFER)}."
        )
        raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})


def was_made_after(change: bytes, until: datetime) -> bool:
    """Tell whether a change, as a JSON document, was made for sure after a moment."""
    return time_of(change) > until + CLOCKS_DIFFER


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
