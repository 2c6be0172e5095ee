"""Words of names and labels, in whatever script."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["MOST_WORDS", "words_of"]

MOST_WORDS: Final = 64
"""Words of a name or label that are looked at."""

_LONGEST: Final = 1_000
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0dff])+")


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, folded: cut at punctuation, underscores and capitals.

    Compatible characters (NFKC) are equal, so that full-width letters and ligatures are found.
    """
    normal = _CAMEL.sub(" ", unicodedata.normalize("NFKC", text[:_LONGEST]))
    return tuple(word.casefold() for word in _WORD.findall(normal))[:MOST_WORDS]
