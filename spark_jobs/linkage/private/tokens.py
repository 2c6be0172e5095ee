"""What of a value is hashed: its overlapping n-grams (docs/papers/pprl.md, 2.1)."""

from __future__ import annotations

import unicodedata

__all__ = ["ngrams", "normalised"]

BLANK = " "


def ngrams(value: str, size: int = 2) -> list[str]:
    """Cut a value into overlapping pieces, after putting a blank on both sides.

    ``tom`` gives ``" t", "to", "om", "m "``. A value without characters has none.

    Args:
        value: The value, normalised.
        size: Characters of each piece.
    """
    if not value:
        return []
    pad = BLANK * (size - 1)
    padded = f"{pad}{value}{pad}"
    return [padded[at : at + size] for at in range(len(padded) - size + 1)]


def normalised(value: str) -> str:
    """Take away what differs between records of one person: case, accents, marks, repeated blanks.

    Letters are decomposed (NFKD), marks dropped, and what is neither letter nor digit counts as a
    blank.
    """
    if value.isascii():
        letters = value.lower()
    else:
        decomposed = unicodedata.normalize("NFKD", value.casefold())
        letters = "".join([c for c in decomposed if not unicodedata.combining(c)])
    if letters.isalnum():
        return letters
    return BLANK.join("".join([c if c.isalnum() else BLANK for c in letters]).split())
