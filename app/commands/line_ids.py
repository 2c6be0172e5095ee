"""Ids for the lines of an import that have none: the same again when a line is put again."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, BinaryIO, Final
from uuid import uuid4

import orjson

from app.api.object_ids import derived_id
from app.http.idempotency import fingerprint_of

__all__ = ["LineIds"]

_DIGEST_BYTES: Final = 16
_PIECE_BYTES: Final = 2**20
_IMPORT_DIGITS: Final = 20
"""Hexadecimal digits of an id that are the import's; the other twelve are the line's number."""


class LineIds:
    """Makes ids of an import id and the numbers of lines.

    Args:
        source: The lines; its position is where they begin.
        import_id: Names the import. None: what the source holds does, if it can be read twice, or
            else what is drawn at random.

    Attributes:
        import_id: The id of the import, None as long as no line has needed one.
    """

    def __init__(self, source: BinaryIO, import_id: str | None) -> None:
        self._source = source
        self._given = import_id
        self._begin = _position(source)
        self._prefix = ""
        self.import_id: str | None = None

    def identified(self, number: int, line: bytes) -> bytes:
        """Return a line with an id, which is its own or is made of its number (from 1 on).

        What is no JSON object is returned as it is: the service says what is wrong with it.

        Raises:
            OSError: The source cannot be read again.
        """
        try:
            document: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            return line
        if not isinstance(document, dict) or "id" in document:
            return line
        # The line is not encoded again, as numbers would not survive that with all their digits.
        inside = line.index(b"{") + 1
        comma = b"," if document else b""
        return b'%b"id":"%b"%b%b' % (line[:inside], self._id(number), comma, line[inside:])

    def _id(self, number: int) -> bytes:
        if self.import_id is None:
            self.import_id = self._given or self._own()
            self._prefix = fingerprint_of(self.import_id.encode())[:_IMPORT_DIGITS]
        # In the order of the lines, so that indexes grow at one end, as with ids of the service.
        return derived_id(f"{self._prefix}{number:012x}").encode()

    def _own(self) -> str:
        if self._begin is None:
            return uuid4().hex
        position = self._source.tell()
        self._source.seek(self._begin)
        digest = blake2b(digest_size=_DIGEST_BYTES)
        while piece := self._source.read(_PIECE_BYTES):
            digest.update(piece)
        self._source.seek(position)
        return digest.hexdigest()


def _position(source: BinaryIO) -> int | None:
    """Return where a source is; None if it is a pipe or a terminal."""
    try:
        return source.tell()
    except OSError:
        return None
