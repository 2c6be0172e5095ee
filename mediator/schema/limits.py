"""Limits of the parts of a schema and of a value (docs/limits.md)."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANNOTATIONS_PER_NODE",
    "BATCHING_MAX_WAIT_S",
    "CACHE_COST_MAX",
    "CACHE_COST_MIN",
    "CACHE_MAX_TTL_S",
    "CLASSES_PER_DATABASE",
    "DECIMAL_DIGITS",
    "DECIMAL_MAX_EXPONENT",
    "DECIMAL_MIN_EXPONENT",
    "DECIMAL_TEXT_LENGTH",
    "DOCUMENT_DEPTH",
    "ENUM_MEMBERS",
    "FIELDS_PER_CLASS",
    "FOREIGN_KEYS_TO_CLASS",
    "FOREIGN_KEY_ELEMENTS",
    "ID_BYTES",
    "INDEXED_ELEMENTS",
    "INDEXED_PATHS",
    "INDEXES",
    "INDEX_FIELDS",
    "INTEGER_MAX",
    "INTEGER_MIN",
    "MAP_KEY_BYTES",
    "MAX_ERRORS",
    "MAX_LENGTH",
    "OBJECT_TTL_MAX_S",
    "PATH_CHARACTERS",
    "PATTERN_CHARACTERS",
    "UNIQUE_CONSTRAINTS",
    "UNIQUE_FIELDS",
    "UTILITY_POINTS",
]

CLASSES_PER_DATABASE: Final = 200
FIELDS_PER_CLASS: Final = 500
ANNOTATIONS_PER_NODE: Final = 64
UTILITY_POINTS: Final = 64

BATCHING_MAX_WAIT_S: Final = 1
"""Upper end of `batching.max_wait_s`, in seconds."""

MAX_LENGTH: Final = 16 * 2**20
"""Upper end of `max_length`: characters of a string, bytes of a binary, else elements."""

INDEXES: Final = 16
INDEX_FIELDS: Final = 4
"""Compound indexes of a class, and fields of each."""

INDEXED_ELEMENTS: Final = 1_000
"""Upper end of the `max_length` of indexed lists and sets: each element has an entry."""

INDEXED_PATHS: Final = 16
PATH_CHARACTERS: Final = 200
"""Indexed paths of a document or map, and characters of each."""

ENUM_MEMBERS: Final = 100
PATTERN_CHARACTERS: Final = 1_000
"""Values of an `enum`, and characters of a `pattern`."""

UNIQUE_CONSTRAINTS: Final = 8
UNIQUE_FIELDS: Final = 8
"""Unique constraints of a class, and fields of each."""

FOREIGN_KEYS_TO_CLASS: Final = 64
"""Foreign keys that refer to one class: a deletion searches along each of them."""

FOREIGN_KEY_ELEMENTS: Final = 100
"""Upper end of the `max_length` of foreign keys that are lists or sets: a write looks up each
element."""

CACHE_MAX_TTL_S: Final = 365 * 86_400
"""Maximum declared freshness in seconds: a year, as HTTP caches take it (RFC 9111, 5.2.2.1)."""

CACHE_COST_MIN: Final = 0.001
CACHE_COST_MAX: Final = 1000
"""Costs of caching, in units of a read that reaches the systems."""

OBJECT_TTL_MAX_S: Final = 100 * CACHE_MAX_TTL_S
"""Maximum `ttl_s` of objects; every store must be able to hold their expiry time."""

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

DECIMAL_DIGITS: Final = 34
DECIMAL_MIN_EXPONENT: Final = -6143
DECIMAL_MAX_EXPONENT: Final = 6144
"""Digits, and exponents of the first digit, are those of IEEE 754 decimal128."""

DECIMAL_TEXT_LENGTH: Final = 256
"""Maximum text length of a decoded decimal; canonical text is much shorter."""

DOCUMENT_DEPTH: Final = 32
"""Nesting depth of objects and arrays in a document, itself included."""

ID_BYTES: Final = 512
MAP_KEY_BYTES: Final = 512

MAX_ERRORS: Final = 100
"""Maximum number of errors in one response."""
