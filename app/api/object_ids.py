"""Ids of new objects, from a body or generated."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from app.http.idempotency import Identity
from mediator.base.errors import Invalid, Location
from mediator.schema.ids import check_id

__all__ = ["derived_id", "id_in_body", "new_id", "object_id"]

_VARIANT = 0b10 << 62
_LOW_MASK = (1 << 62) - 1


def id_in_body(body: dict[str, Any], pointer: str = "") -> str | None:
    """Return the id in the body, if any; raise `Invalid` if it is not valid."""
    if "id" not in body:
        return None
    if not isinstance(body["id"], str):
        location = Location(f"{pointer}/id", "a string is expected")
        raise Invalid("The id is not a string.", locations=[location])
    return check_id(body["id"], f"{pointer}/id")


def new_id() -> str:
    """Return an id that sorts after those of earlier milliseconds (RFC 9562, section 5.7)."""
    random = int.from_bytes(os.urandom(10), "big")
    milliseconds = time.time_ns() // 1_000_000
    # 48 bits of time, version 7 and 12 random bits; below them the variant and 62 random bits.
    high = milliseconds << 80 | 7 << 76 | (random >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | random & _LOW_MASK))


def derived_id(digest: str) -> str:
    """Return the id with these 32 hexadecimal digits (RFC 9562, section 5.8)."""
    number = int(digest, 16)
    # The digits, except for the 4 bits of version 8 and the 2 bits of the variant.
    high = number >> 80 << 80 | 8 << 76 | (number >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | number & _LOW_MASK))


def object_id(identity: Identity, class_name: str, index: int = 0) -> str:
    """Return the id of a new object, the same for repetitions under an Idempotency-Key."""
    if identity.key is None:
        return new_id()
    return derived_id(identity.derive("object", class_name, str(index)))
