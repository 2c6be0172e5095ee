"""What stores that hold copies have in common."""

from __future__ import annotations

from mediator.stores.port import Record

__all__ = ["is_surpassed"]


def is_surpassed(record: Record, held: Record | None) -> bool:
    """Whether a copy that was not taken in was not needed either.

    Args:
        record: What was to be taken in.
        held: The living copy that stood against it; None: it has been forgotten since.

    Returns:
        False if what is held is older in some group: then the two were read in parts at different
        times, and only a further look tells how the groups stand together.
    """
    if held is None or held.creation_version != record.creation_version:
        return True
    return all(held.versions.get(group, 0) >= v for group, v in record.versions.items())
