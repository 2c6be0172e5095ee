"""Finds a text that occurs twice among very many, in the memory of their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

import numpy as np

__all__ = ["doubled_text"]

_DIGEST: Final = 16
"""Bytes: of so many, two texts of a result never have the same digest."""


def doubled_text(texts: Callable[[], Iterable[str]]) -> str | None:
    """Find a text that occurs more than once.

    Args:
        texts: Gives them; called again to find the text of a digest that occurred twice.

    Returns:
        One such text; None: each occurs once.
    """
    digests = bytearray()
    for text in texts():
        digests += _digest(text)
    ordered = np.frombuffer(digests, f"S{_DIGEST}")
    ordered.sort()  # in place
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not repeated.size:
        return None
    # NumPy leaves out zeros at the end.
    wanted = bytes(repeated[0]).ljust(_DIGEST, b"\0")
    return next(text for text in texts() if _digest(text) == wanted)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST).digest()
