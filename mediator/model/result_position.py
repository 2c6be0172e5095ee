"""Positions after numbered results, the last of which a server may lose and number anew."""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

__all__ = ["ResultPosition"]


class ResultPosition(NamedTuple):
    """After a result; results are numbered 1, 2, 3, … without a gap.

    A coordination Redis that has lost its last results gives their numbers again. So positions say
    what was seen: the digest of a result is that of the one before and of its content. Whoever
    finds the same results once more goes on, and others are told.

    Attributes:
        number: That of the result; 0: before the first one.
        digest: 16 hexadecimal digits; empty: any result that has the number is the one.
    """

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.number}-{self.digest}" if self.digest else str(self.number)

    @classmethod
    def parse(cls, text: str) -> ResultPosition:
        """Read what `str` has written, or a plain number."""
        number, _, digest = text.partition("-")
        return cls(int(number), digest)

    def following(self, content: bytes) -> ResultPosition:
        """Return the position after the next result, as scripts compute it of its content."""
        digest = sha1(self.digest.encode() + content, usedforsecurity=False).hexdigest()[:16]
        return ResultPosition(self.number + 1, digest)
