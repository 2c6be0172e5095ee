"""The versions that a restoration has given to objects: eight bytes each, as there are millions."""

from __future__ import annotations

from array import array
from hashlib import blake2b

from mediator.model.operations import Outcome

__all__ = ["GivenVersions"]


class GivenVersions:
    """The versions of objects of one class that were put, to 64 bits of a digest."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, put: Outcome) -> None:
        """Remember the versions that an object has got."""
        self._digests.append(_digest(put))

    def __contains__(self, present: Outcome) -> bool:
        """Whether an object has versions that it was given, and so nobody else has written it."""
        return _digest(present) in self._digests


def _digest(outcome: Outcome) -> int:
    versions = sorted((group, v) for group, v in outcome.versions.items() if v is not None)
    text = repr((outcome.id, versions)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest())
