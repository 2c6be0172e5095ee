"""Checks that results in the coordination Redis follow a position, without lost ones."""

from __future__ import annotations

from mediator.changes.feed import PositionGone
from mediator.model.result_position import ResultPosition

__all__ = ["last_position", "require_following"]


def last_position(text: bytes | None) -> ResultPosition:
    """Return the position after the last result, as written by the script that added it."""
    return ResultPosition.parse(text.decode()) if text else ResultPosition()


def require_following(
    after: ResultPosition, last: ResultPosition, first: tuple[ResultPosition, bytes] | None
) -> None:
    """Raise `PositionGone` unless the results read follow a position.

    Args:
        after: The position that the client has seen.
        last: The position after the last existing result.
        first: The position after the first result read, and its content; None: none was read.
    """
    actual, expected = last, after
    if first is not None:
        actual, content = first
        expected = after.following(content)
    if actual.number != expected.number:
        raise PositionGone("The results after this one are no longer kept.")
    if after.digest and actual.digest != expected.digest:
        raise PositionGone("This result, or one before it, was lost, and others have replaced it.")
