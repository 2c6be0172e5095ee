"""Commands encoded as bytes."""

from __future__ import annotations

from typing import Any

import hiredis

__all__ = ["arguments", "command"]


def command(*texts: Any) -> bytes:
    """Encode a command of texts, bytes and numbers."""
    packed: bytes = hiredis.pack_command(texts)
    return packed


def arguments(*texts: Any) -> bytes:
    """Encode arguments of a command that is assembled later: constant ones only once."""
    packed: bytes = hiredis.pack_command(texts)
    return packed[packed.index(b"\n") + 1 :]  # without the count of the command's words
