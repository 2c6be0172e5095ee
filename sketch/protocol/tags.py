"""Names by which caches are asked to forget an answer."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["TAG_DIGITS", "tag_of"]

TAG_DIGITS: Final = 32
"""All tags are as long, so that none is a part of another (RFC 9875 grants 32 characters)."""


def tag_of(database: str, key: str) -> str:
    """Return the tag of a cache group of an object, 32 hexadecimal digits."""
    return blake2b(f"{database}/{key}".encode(), digest_size=TAG_DIGITS // 2).hexdigest()
