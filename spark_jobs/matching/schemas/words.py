"""Words of names and labels, in any script."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["MAX_WORDS", "words_of"]

MAX_WORDS: Final = 64
"""Maximum words of a name or label."""

_MAX_CHARACTERS: Final = 1_000
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0dff])+")


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, folded: cut at punctuation, underscores and capitals.

    Text is normalised (NFKC), so full-width letters and ligatures equal plain letters.
    """
    normal = _CAMEL.sub(" ", unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS]))
    return tuple(word.casefold() for word in _WORD.findall(normal))[:MAX_WORDS]
