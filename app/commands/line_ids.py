"""Ids for the lines of an import that have none; a repeated import gets the same ids."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, BinaryIO, Final
from uuid import uuid4

import orjson

from app.api.object_ids import derived_id
from app.http.idempotency import fingerprint_of

__all__ = ["LineIds"]

_DIGEST_BYTES: Final = 16
_CHUNK_BYTES: Final = 2**20
_IMPORT_DIGITS: Final = 20
"""Leading hexadecimal digits of an id, of the import; the other twelve are the line number."""


class LineIds:
    """Derives ids from an import id and line numbers.

    Args:
        source: The lines, from the current position on.
        import_id: Identifies the import. None: a digest of the source if it can be read twice, else
            a random id.

    Attributes:
        import_id: The id of the import; None until a line needs one.
    """

    def __init__(self, source: BinaryIO, import_id: str | None) -> None:
        self._source = source
        self._requested_id = import_id
        self._start = _position(source)
        self._prefix = ""
        self.import_id: str | None = None

    def with_id(self, number: int, line: bytes) -> bytes:
        """Return a line with an id: its own, or one derived from its number (from 1 on).

        A line without a JSON object is returned unchanged: the service reports the mistake.

        Raises:
            OSError: The source cannot be read again.
        """
        try:
            document: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            return line
        if not isinstance(document, dict) or "id" in document:
            return line
        # The line is not re-encoded: numbers would lose digits.
        start = line.index(b"{") + 1
        comma = b"," if document else b""
        return b'%b"id":"%b"%b%b' % (line[:start], self._id(number), comma, line[start:])

    def _id(self, number: int) -> bytes:
        if self.import_id is None:
            self.import_id = self._requested_id or self._default_id()
            self._prefix = fingerprint_of(self.import_id.encode())[:_IMPORT_DIGITS]
        # In the order of the lines, so that indexes grow at one end, as with ids of the service.
        return derived_id(f"{self._prefix}{number:012x}").encode()

    def _default_id(self) -> str:
        if self._start is None:
            return uuid4().hex
        position = self._source.tell()
        self._source.seek(self._start)
        digest = blake2b(digest_size=_DIGEST_BYTES)
        while chunk := self._source.read(_CHUNK_BYTES):
            digest.update(chunk)
        self._source.seek(position)
        return digest.hexdigest()


def _position(source: BinaryIO) -> int | None:
    """Return the position of a source; None for a pipe or a terminal."""
    try:
        return source.tell()
    except OSError:
        return None
