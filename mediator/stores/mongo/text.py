"""How texts and keys are stored, so that no server can misorder or misread them."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = [
    "database_name",
    "database_prefix",
    "ordered_text",
    "path_key",
    "plain_key",
    "plain_text",
]

_ABOVE_SURROGATES: Final = re.compile("[\ue000-\U0010ffff]")
_MARKED: Final = re.compile("[\ue000\ue001](.)", re.DOTALL)
_SPECIAL: Final = re.compile("[%.$\x00]")
_ESCAPED: Final = re.compile("%([0-9A-F]{2})")
_EMPTY_KEY: Final = "%"

_NAME_BYTES: Final = 63
_PREFIX_CHARACTERS: Final = 24
_PLAIN_NAME: Final = re.compile("[a-z0-9_]+")
_HASH_CHARACTERS: Final = 10


def ordered_text(text: str) -> str:
    """Write a text so that every server sorts it by UTF-8 bytes.

    mongo-java-server compares UTF-16 code units, which put U+E000 to U+FFFF after the supplementary
    characters. Each of these and those gets an intent before it that sorts alike in both encodings;
    all other texts, which are nearly all, are stored as they are.
    """
    return text if text.isascii() else _ABOVE_SURROGATES.sub(_marked, text)


def plain_text(stored: str) -> str:
    """Read what `ordered_text` has written."""
    return stored if stored.isascii() else _MARKED.sub(r"\1", stored)


def _marked(match: re.Match[str]) -> str:
    character = match[0]
    return ("\ue000" if character <= "\uffff" else "\ue001") + character


def path_key(key: str) -> str:
    """Write a user's key so that it is one step of a path, and never an operator."""
    return _SPECIAL.sub(_escape, key) if key else _EMPTY_KEY


def plain_key(stored: str) -> str:
    """Read what `path_key` has written."""
    if stored == _EMPTY_KEY:
        return ""
    return _ESCAPED.sub(_unescape, stored) if "%" in stored else stored


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def database_prefix(namespace: str) -> str:
    """Return what the names of all MongoDB databases of a namespace begin with.

    It ends with a hyphen, which no database of a schema has in its name: so ``a`` with ``b_c`` and
    ``a_b`` with ``c`` stay apart.
    """
    return _shortened(namespace, _PREFIX_CHARACTERS) + "-"


def database_name(namespace: str, database: str) -> str:
    """Name the MongoDB database of a schema: at most 63 bytes, in lower case."""
    prefix = database_prefix(namespace)
    return prefix + _shortened(database, _NAME_BYTES - len(prefix))


def _shortened(name: str, limit: int) -> str:
    if len(name) <= limit and _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode()).hexdigest()[:_HASH_CHARACTERS]
    readable = re.sub("[^a-z0-9_]", "_", name.lower())[: limit - _HASH_CHARACTERS - 1]
    return f"{readable}~{digest}"
