"""JSON Merge Patch (RFC 7396)."""

from __future__ import annotations

from typing import Any, Final

from mediator.base.errors import Invalid

__all__ = ["merge_patch"]


DEPTH: Final = 64


def merge_patch(present: Any, patch: Any, depth: int = 0) -> Any:
    """Apply a patch as section 2 says, sharing what is not changed.

    Raises:
        Invalid: The patch is nested deeper than `DEPTH`.
    """
    if depth > DEPTH:
        raise Invalid(f"The patch is nested deeper than {DEPTH}.")
    if type(patch) is not dict:
        return patch
    result: dict[str, Any] = dict(present) if type(present) is dict else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), member, depth + 1)
    return result
