"""Ids made by the server: sortable by time (RFC 9562, UUIDv7), or derived from a key (UUIDv8)."""

from __future__ import annotations

import os
import time
import uuid

from app.http.idempotency import Identity

__all__ = ["derived_id", "new_id", "object_id"]

_VARIANT = 0b10 << 62
_LOW = (1 << 62) - 1


def new_id() -> str:
    """Return an id that sorts after those of earlier milliseconds (RFC 9562, section 5.7)."""
    random = int.from_bytes(os.urandom(10), "big")
    milliseconds = time.time_ns() // 1_000_000
    high = milliseconds << 80 | 7 << 76 | (random >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | random & _LOW))


def derived_id(digest: str) -> str:
    """Return the id that belongs to 32 hexadecimal digits (RFC 9562, section 5.8)."""
    number = int(digest, 16)
    high = number >> 80 << 80 | 8 << 76 | (number >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | number & _LOW))


def object_id(identity: Identity, class_name: str, index: int = 0) -> str:
    """Return the id of a new object: the same again for the same Idempotency-Key."""
    if identity.key is None:
        return new_id()
    return derived_id(identity.derive("object", class_name, str(index)))
