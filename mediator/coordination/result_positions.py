"""Whether results in the coordination Redis are those after a position, or others were lost."""

from __future__ import annotations

from mediator.changes.feed import PositionGone
from mediator.model.result_position import ResultPosition

__all__ = ["last_position", "require_following"]


def last_position(known: bytes | None) -> ResultPosition:
    """Return the position after the last result, as the script that added it has written it."""
    return ResultPosition.parse(known.decode()) if known else ResultPosition()


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
    if after.digest and found.digest != expected.digest:
        raise PositionGone("This result, or one before it, was lost, and there are others now.")
