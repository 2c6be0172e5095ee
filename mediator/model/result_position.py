"""Positions after numbered results; a server may lose the last ones and reuse their numbers."""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

__all__ = ["ResultPosition"]


class ResultPosition(NamedTuple):
    """A position after a result; results are numbered 1, 2, 3, … without a gap.

    A coordination Redis that has lost its last results reuses their numbers. So positions identify
    the results seen: the digest of a result covers its content and the digest before it. A client
    continues if the results are the same, and gets an error otherwise.

    Attributes:
        number: The number of the result; 0: before the first one.
        digest: 16 hexadecimal digits; empty: any result with the number matches.
    """

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.number}-{self.digest}" if self.digest else str(self.number)

    @classmethod
    def parse(cls, text: str) -> ResultPosition:
        """Parse the output of `str`, or a plain number."""
        number, _, digest = text.partition("-")
        return cls(int(number), digest)

    def following(self, content: bytes) -> ResultPosition:
        """Return the position after the next result, computed from its content as in scripts."""
        digest = sha1(self.digest.encode() + content, usedforsecurity=False).hexdigest()[:16]
        return ResultPosition(self.number + 1, digest)
