"""Cursors: keyset positions that only we can have made, each good for one query of one database."""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any

import orjson

from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location
from mediator.changes.feed import PositionGone

__all__ = ["Cursors"]

_MAC_BYTES = 16
_LONGEST = 16_384


class Cursors:
    """Seals and opens cursors by a secret of any length."""

    def __init__(self, key: bytes) -> None:
        self._key = sha256(key).digest()

    def seal(self, query: Sequence[str | None], database_id: str, position: list[Any]) -> str:
        """Return the cursor of a position (JSON) in the listing that `query` describes."""
        payload = orjson.dumps([database_id, *position])
        return urlsafe_b64encode(self._mac(query, payload) + payload).rstrip(b"=").decode()

    def open(self, query: Sequence[str | None], database_id: str, cursor: str) -> list[Any]:
        """Return the position.

        Raises:
            HttpError: The cursor is not ours, was changed, or belongs to another query.
            PositionGone: It is of an earlier database of the same name.
        """
        raw = _decode(cursor)
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(query, payload)):
            raise _refuse()
        position: list[Any]
        sealed_for, *position = orjson.loads(payload)
        if sealed_for != database_id:
            raise PositionGone("The database of this cursor was dropped; begin from the start.")
        return position

    def _mac(self, query: Sequence[str | None], payload: bytes) -> bytes:
        # A JSON array has one reading, so no two queries share their bytes.
        message = orjson.dumps(query) + b"\n" + payload
        return blake2b(message, digest_size=_MAC_BYTES, key=self._key).digest()


def _decode(cursor: str) -> bytes:
    if len(cursor) > _LONGEST:
        raise _refuse()
    try:
        return urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raise _refuse() from None


def _refuse() -> HttpError:
    detail = "The cursor does not belong to this query."
    return HttpError(
        INVALID, detail, locations=[Location("after", "is not a cursor of this query")]
    )
