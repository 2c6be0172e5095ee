"""Orders for stores that read along one index: the one level that an order comes to."""

from __future__ import annotations

from mediator.model.filters import ID
from mediator.model.query import OrderBy

__all__ = ["only_level"]


def only_level(order: tuple[OrderBy, ...]) -> OrderBy | None:
    """Return the one level that decides, if there is one.

    Ids follow the values of the last level in its direction anyway, and nothing is left to be
    ordered behind them. No level at all is the order of ids.
    """
    match order:
        case ():
            return OrderBy(ID)
        case (level, *_) if level.path == ID:
            return level
        case (level, *rest) if not rest or rest[0] == OrderBy(ID, level.descending):
            return level
    return None
