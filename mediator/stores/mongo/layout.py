"""The layout of a record as one MongoDB document.

=============== ===================================================================================
``_id``         the object's id, as `ordered_text`
``values``      the fields that are not missing, by name; absent from a tombstone
``versions``    the version of each group, Int64
``creation_version``       version of the object's creation, Int64
``tombstone``   when it was deleted (Int64, microseconds); only deleted records have it
``_ops``        the newest remembered operations
``_archived``   whether older ones are in the archive (`outbox.archive`)
``_pending``    outbox: the unrelayed writes, each as `EntryEncoder.text`
``_base``       values before the first of these, as JSON text; absent if there was no record
``_fences``     tokens whose writes are refused, each with its time
``_intent``       the write intent on the record
``_redo``         the redo record of the write intent
``_joint``      the last joint write of the record: the intent under which it was applied
``_claims``     by unique constraint, the record's claims, in a list with its reservations
``_reserved``   by unique constraint, the reservation under its intent
``_bytes``      upper bound of the document's size in bytes, Int64 (`sizes`)
``_acknowledged``    number of acknowledged writes, and the last few, as JSON text
=============== ===================================================================================

User names occur only as keys below ``values`` and ``versions``, where they are escaped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from mediator.schema.types import Values
from mediator.schema.unique import constraint_name
from mediator.stores.mongo.codec import field_codec, ordered_text, path_key, plain_text
from mediator.stores.mongo.outbox.effect import EntryEncoder
from mediator.stores.port import Fragment, Record

__all__ = [
    "BOOKKEEPING",
    "INTENT_FIELDS",
    "LIVE",
    "Document",
    "Layout",
    "among",
    "database_name",
    "database_prefix",
    "has_intent",
    "is_fenced",
    "is_live",
    "layout_of",
    "unfenced",
]

Document: TypeAlias = dict[str, Any]

LIVE: Final[Document] = {"tombstone": {"$exists": False}}
"""The condition that a record is present."""

BOOKKEEPING: Final[Document] = {"creation_version": 1, "versions": 1, "tombstone": 1}
"""The projection that every reply needs."""

INTENT_FIELDS: Final[Document] = {"_intent": "", "_redo": ""}
"""The fields that are unset with an intent."""

_ALL_FIELDS: Final[Document] = {**BOOKKEEPING, "values": 1}
_JOINT: Final[Document] = {"_intent": 1, "_joint": 1}
_LAYOUTS: Final = 4096
_NAME_BYTES: Final = 63
_PREFIX_CHARACTERS: Final = 24
_PLAIN_NAME: Final = re.compile("[a-z0-9_]+")
_HASH_CHARACTERS: Final = 10


def among(ids: Iterable[str]) -> Document:
    return {"_id": {"$in": [ordered_text(id_) for id_ in ids]}}


def unfenced(token: str) -> Document:
    """Return the condition that a record is not fenced against the writes of a token."""
    return {"_fences.token": {"$ne": token}} if token else {}


def has_intent(intent: str) -> Document:
    """Return the condition that a record has this intent; empty: that it has none."""
    return {"_intent": intent or {"$exists": False}}


def is_fenced(document: Mapping[str, Any] | None, token: str) -> bool:
    """Whether a document takes no writes of a token; false without a token."""
    return bool(token) and any(
        fenced["token"] == token for fenced in (document or {}).get("_fences", ())
    )


def is_live(document: Mapping[str, Any] | None) -> bool:
    """Whether a document exists and is a live record."""
    return document is not None and "tombstone" not in document


class Layout:
    """One fragment, compiled: paths, codecs and names.

    Attributes:
        fragment: The fragment.
        paths: The path of each field's value.
        version_paths: The path of each group's version.
        claim_paths: The path of claims, by the name of the unique constraint.
        effects: The encoder of outbox entries.
    """

    __slots__ = (
        "_codecs",
        "_fields",
        "_groups",
        "claim_paths",
        "effects",
        "fragment",
        "paths",
        "version_paths",
    )

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.effects = EntryEncoder(fragment)
        self._codecs = {name: field_codec(field) for name, field in fragment.fields.items()}
        self._fields = {name: path_key(name) for name in fragment.fields}
        self._groups = {name: path_key(name) for name in fragment.groups}
        self.paths = {name: f"values.{key}" for name, key in self._fields.items()}
        self.version_paths = {name: f"versions.{key}" for name, key in self._groups.items()}
        constraints = map(constraint_name, fragment.unique)
        self.claim_paths = {name: f"_claims.{name}" for name in constraints}

    def path_within(self, name: str, keys: Iterable[str]) -> str:
        """Return the path of a value within a document or a map."""
        return ".".join([self.paths[name], *map(path_key, keys)])

    def key(self, id_: str) -> Document:
        """Return the condition that selects a record: a text, which cannot be an operator."""
        return {"_id": ordered_text(id_)}

    def projection(self, fields: tuple[str, ...] | None) -> Document:
        """Return the projection of some fields, or of all (None), without the bookkeeping lists."""
        joint = _JOINT if self.fragment.joint else {}
        if fields is None:
            return _ALL_FIELDS | joint
        return BOOKKEEPING | joint | dict.fromkeys((self.paths[name] for name in fields), 1)

    def encode(self, name: str, value: Any) -> Any:
        """Return a field's value as BSON."""
        return None if value is None else self._codecs[name].encode(value)

    def decode(self, name: str, stored: Any) -> Any:
        """Return a field's value from BSON."""
        return None if stored is None else self._codecs[name].decode(stored)

    def encode_all(self, values: Mapping[str, Any]) -> Document:
        return {self._fields[name]: self.encode(name, value) for name, value in values.items()}

    def decode_all(
        self, document: Mapping[str, Any] | None, fields: Iterable[str] | None = None
    ) -> Values:
        """Return the values of a sub-document: all of the fragment's fields, or only `fields`."""
        values: Values = {}
        stored = document or {}
        for name in self._fields if fields is None else fields:
            key = self._fields[name]
            if key in stored:
                value = stored[key]
                values[name] = None if value is None else self._codecs[name].decode(value)
        return values

    def stored_values(self, document: Mapping[str, Any]) -> Document:
        """Return the stored fields of a document, as BSON, by name."""
        stored = document.get("values", {})
        return {name: stored[key] for name, key in self._fields.items() if key in stored}

    def encode_versions(self, versions: Mapping[str, int]) -> Document:
        return {self._groups[group]: Int64(version) for group, version in versions.items()}

    def decode_versions(self, document: Mapping[str, Any] | None) -> dict[str, int]:
        """Return the versions of the fragment's groups."""
        stored = (document or {}).get("versions", {})
        return {name: int(stored[key]) for name, key in self._groups.items() if key in stored}

    def record(self, document: Mapping[str, Any]) -> Record:
        return Record(
            plain_text(document["_id"]),
            int(document["creation_version"]),
            self.decode_versions(document),
            self.decode_all(document.get("values")),
            document.get("_intent", ""),
            document.get("_joint", ""),
        )


layout_of = lru_cache(maxsize=_LAYOUTS)(Layout)
"""The layout of a fragment, compiled once; fragments are compared by identity."""


def database_prefix(namespace: str) -> str:
    """Return the name prefix of all MongoDB databases of a namespace.

    It ends with a hyphen, which names of schema databases do not contain: so ``a`` with ``b_c`` and
    ``a_b`` with ``c`` stay distinct.
    """
    return _shorten(namespace, _PREFIX_CHARACTERS) + "-"


def database_name(namespace: str, database: str) -> str:
    """Name the MongoDB database of a schema: at most 63 bytes, in lower case."""
    prefix = database_prefix(namespace)
    return prefix + _shorten(database, _NAME_BYTES - len(prefix))


def _shorten(name: str, limit: int) -> str:
    if len(name) <= limit and _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode()).hexdigest()[:_HASH_CHARACTERS]
    readable = re.sub("[^a-z0-9_]", "_", name.lower())[: limit - _HASH_CHARACTERS - 1]
    return f"{readable}~{digest}"
