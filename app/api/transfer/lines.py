"""Lines out of a stream of bytes, never more than one line and one piece held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

__all__ = ["Line", "split_lines"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank.

    Attributes:
        number: Its number, from 1 on; blank lines count.
        text: The line without its end; None if it was longer than allowed.
    """

    number: int
    text: bytes | None


async def split_lines(pieces: AsyncIterator[bytes], longest: int) -> AsyncIterator[Line]:
    """Split a stream at line feeds; lines beyond `longest` bytes are dropped as they come in."""
    number, buffer, dropping = 1, bytearray(), False
    async for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            if line := _line(number, buffer, part, longest, dropping=dropping):
                yield line
            number, dropping = number + 1, False
            buffer.clear()
        dropping = dropping or len(buffer) + len(rest) > longest
        buffer += b"" if dropping else rest
    if last := _line(number, buffer, b"", longest, dropping=dropping):
        yield last


def _line(
    number: int, buffer: bytearray, part: bytes, longest: int, *, dropping: bool
) -> Line | None:
    if dropping or len(buffer) + len(part) > longest:
        return Line(number, None)
    text = (bytes(buffer) + part).strip(b" \t\r")
    return Line(number, text) if text else None
