"""Finds a duplicate among very many texts, in the memory of their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

import numpy as np

__all__ = ["duplicate_text"]

_DIGEST_BYTES: Final = 16
"""Bytes of a digest: enough that two texts of a result never have the same digest."""


def duplicate_text(texts: Callable[[], Iterable[str]]) -> str | None:
    """Find a text that occurs more than once.

    Args:
        texts: Returns the texts; called again to find the text of a duplicate digest.

    Returns:
        A duplicate text; None: each occurs once.
    """
    digests = bytearray()
    for text in texts():
        digests += _digest(text)
    ordered = np.frombuffer(digests, f"S{_DIGEST_BYTES}")
    ordered.sort()  # in place
    duplicates = ordered[1:][ordered[1:] == ordered[:-1]]
    if not duplicates.size:
        return None
    # NumPy drops trailing zeros.
    digest = bytes(duplicates[0]).ljust(_DIGEST_BYTES, b"\0")
    return next(text for text in texts() if _digest(text) == digest)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
