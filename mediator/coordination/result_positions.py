"""Whether results in the coordination Redis are those after a position, or others were lost."""

from __future__ import annotations

from mediator.changes.feed import PositionGone
from mediator.model.result_position import ResultPosition
from redis_connection.scripts import lua_text

__all__ = ["digests_text", "last_position", "require_following"]


def digests_text() -> str:
    """Return what a script that adds results starts with."""
    return lua_text("mediator.coordination.scripts", "digests")


def last_position(count: bytes | None, known: bytes | None) -> ResultPosition:
    """Return the position after the last result, whose digest an older version does not write.

    Args:
        count: How many results there were, ever.
        known: The last position that was written.
    """
    number = int(count or 0)
    position = ResultPosition.parse(known.decode()) if known else ResultPosition()
    return position if position.number == number else ResultPosition(number)


def require_following(
    after: ResultPosition, last: ResultPosition, first: tuple[ResultPosition, bytes] | None
) -> None:
    """Raise `PositionGone` unless what was found follows a position.

    Args:
        after: What was seen.
        last: After the last result that there is.
        first: After the first result that was found, and its content; None: none was.
    """
    found, expected = last, after
    if first is not None:
        found, content = first
        expected = after.following(content)
    if found.number != expected.number:
        raise PositionGone("The results after this one are no longer kept.")
    if after.digest and found.digest and found.digest != expected.digest:
        raise PositionGone("This result, or one before it, was lost, and there are others now.")
