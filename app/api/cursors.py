"""Cursors, which only we can have made, and positions of writes, which a client has seen."""

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

__all__ = ["Cursors", "position_of", "seen_at"]

_MAC_BYTES = 16
_LONGEST = 16_384
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_VERSION: Final = r"[a-zA-Z0-9_]+:\d{1,19}"
_SEEN: Final = re.compile(
    # The comma is no option: without it a digit could belong to two versions, in endless ways.
    rf"([a-z0-9_]+)/([a-z0-9_]+)/(.*)#((?:{_VERSION}(?:,{_VERSION})*)?)",
    re.ASCII | re.DOTALL,
)


class Cursors:
    """Seals and opens cursors: keyset positions, each good for one query of one database."""

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


def position_of(planned: PlannedOperation, outcome: Outcome) -> str:
    """Name the versions that a write made, for ``Prefer: at-least``."""
    resource = planned.resource
    versions = ",".join([f"{group}:{v}" for group, v in outcome.versions.items()])
    text = f"{resource.database}/{resource.name}/{outcome.id}#{versions}"
    coded = binascii.b2a_base64(text.encode(), newline=False)  # without the layers of base64
    return coded.translate(_URL_SAFE, b"=").decode()


def seen_at(position: str, database: str) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return the versions that a position of this database names, by class and id."""
    try:
        text = urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    found = _SEEN.fullmatch(text)
    if found is None or found[1] != database:
        locations = [Location("Prefer", "at-least must be a Portolan-Position of this database")]
        raise HttpError(INVALID, "The position is of another database.", locations=locations)
    pairs = [pair.split(":") for pair in found[4].split(",")] if found[4] else []
    return {(found[2], found[3]): {group: int(version) for group, version in pairs}}
