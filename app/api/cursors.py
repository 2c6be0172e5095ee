"""Cursors of listings, which are authenticated, and positions of writes."""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any, Final

import orjson

from app.api.writes import PlannedOperation
from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location
from mediator.changes.feed import PositionGone
from mediator.model.operations import Outcome

__all__ = ["Cursors", "parse_position", "position_of"]

_MAC_BYTES = 16
_MAX_CURSOR_LENGTH = 16_384
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_VERSION: Final = r"[a-zA-Z0-9_]+:\d{1,19}"
_POSITION: Final = re.compile(
    # The comma is mandatory: otherwise a digit could belong to either of two versions, and matching
    # would backtrack without end.
    rf"([a-z0-9_]+)/([a-z0-9_]+)/(.*)#((?:{_VERSION}(?:,{_VERSION})*)?)",
    re.ASCII | re.DOTALL,
)


class Cursors:
    """Seals and opens cursors: keyset positions, each valid for one query of one database."""

    def __init__(self, key: bytes) -> None:
        self._key = sha256(key).digest()

    def seal(self, query: Sequence[str | None], database_id: str, position: list[Any]) -> str:
        """Return the cursor of a position (JSON) in the listing that `query` describes."""
        payload = orjson.dumps([database_id, *position])
        return urlsafe_b64encode(self._mac(query, payload) + payload).rstrip(b"=").decode()

    def open(self, query: Sequence[str | None], database_id: str, cursor: str) -> list[Any]:
        """Return the position.

        Raises:
            HttpError: The cursor is forged or malformed, or belongs to another query.
            PositionGone: It belongs to an earlier database of the same name.
        """
        raw = _decode(cursor)
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(query, payload)):
            raise _refuse()
        position: list[Any]
        sealed_id, *position = orjson.loads(payload)
        if sealed_id != database_id:
            raise PositionGone("The database of this cursor was dropped; begin from the start.")
        return position

    def _mac(self, query: Sequence[str | None], payload: bytes) -> bytes:
        # JSON arrays are unambiguous, so different queries have different bytes.
        message = orjson.dumps(query) + b"\n" + payload
        return blake2b(message, digest_size=_MAC_BYTES, key=self._key).digest()


def _decode(cursor: str) -> bytes:
    if len(cursor) > _MAX_CURSOR_LENGTH:
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


def position_of(planned: PlannedOperation, outcome: Outcome) -> str:
    """Encode the versions of a write, for ``Prefer: at-least``."""
    resource = planned.resource
    versions = ",".join([f"{group}:{v}" for group, v in outcome.versions.items()])
    text = f"{resource.database}/{resource.name}/{outcome.id}#{versions}"
    encoded = binascii.b2a_base64(text.encode(), newline=False)  # without the layers of base64
    return encoded.translate(_URL_SAFE, b"=").decode()


def parse_position(position: str, database: str) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return the versions in a position of this database, by class and id."""
    try:
        text = urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    match = _POSITION.fullmatch(text)
    if match is None or match[1] != database:
        locations = [Location("Prefer", "at-least must be a Portolan-Position of this database")]
        raise HttpError(INVALID, "The position is of another database.", locations=locations)
    pairs = [pair.split(":") for pair in match[4].split(",")] if match[4] else []
    return {(match[2], match[3]): {group: int(version) for group, version in pairs}}
