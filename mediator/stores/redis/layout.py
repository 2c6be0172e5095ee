"""How a fragment is laid out in Redis: the keys of its records, and the names in their hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final, TypeAlias
from zlib import crc32

from mediator.schema.unique import constraint_name
from mediator.stores.port import RETENTION_S, Fragment, SystemConfig, TakenClaim
from mediator.stores.redis.codec import COLLECTIONS

__all__ = ["IDS", "RETENTION_MS", "TOMBSTONE_MS", "Index", "Layout", "LayoutOf", "layouts"]

RETENTION_MS: Final = RETENTION_S * 1000
TOMBSTONE_MS: Final = (RETENTION_S + 3600) * 1000
"""TTL of a tombstone: it outlasts the remembered operations on its object."""

_MAX_LAYOUTS: Final = 512
"""Maximum number of cached layouts; a replaced routing model leaves its layouts behind."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a class: in each partition a sorted set, whose members end with ids.

    Attributes:
        fields: The fields whose values the members begin with, in order.
        of_elements: Whether a record has a member for each element of its field, not for its value.
    """

    fields: tuple[str, ...]
    of_elements: bool = False

    @property
    def name(self) -> str:
        """Its name in keys: field names contain no comma. Empty for the index of ids."""
        return ",".join(self.fields)

    @property
    def is_single(self) -> bool:
        """Whether it indexes the values of one field."""
        return len(self.fields) == 1 and not self.of_elements


IDS: Final = Index(())
"""The index of ids, which every class has."""


class Layout:
    """The keys and names of a fragment, computed once.

    Attributes:
        head: Names in the hash of the creation version, and of the version of each group.
        positions: The position of each group's version among them, counted from 1.
        claims_key: The key of the claims of the class, in all partitions.
        constraints: The names of its unique constraints.
        subject: The class as outbox entries name it.
        prepared: Cached prepared writes by their shared properties (`write.prepared`).
        latest_prepared: The last used prepared write, with its key.
        call_heads: The constant beginnings of script calls, with the number of their words.
    """

    def __init__(self, fragment: Fragment, config: SystemConfig) -> None:
        self.fragment = fragment
        self.groups = tuple(fragment.groups)
        self.head = ("!b", *(f"@{group}" for group in self.groups))
        self._read_head = (*self.head, "!m", "!j") if fragment.joint else self.head
        self._partitions = config.partitions
        # A hash tag keeps the keys of a partition in one slot, as scripts in a cluster require.
        tags = [f"{{{config.namespace}:{p}}}:" for p in range(config.partitions)]
        self.prefixes = [f"{tag}{fragment.database}.{fragment.stored_as}:" for tag in tags]
        self.claims_key = f"{self.prefixes[0]}claims"
        self.constraints = tuple(map(constraint_name, fragment.unique))
        self.outboxes = [f"{tag}outbox" for tag in tags]
        self.group_names = {f"@{group}".encode(): group for group in self.groups}
        self.field_names = {name.encode(): name for name in fragment.fields}
        self.subject = f"{fragment.database_id}/{fragment.class_name}"
        # From 2: Lua counts from 1, and the creation version comes first.
        self.positions = {group: number for number, group in enumerate(self.groups, 2)}
        self.prepared: dict[Any, Any] = {}
        self.latest_prepared: tuple[Any, Any] = (None, None)
        self.call_heads: dict[Any, tuple[int, bytes]] = {}
        self.collections = frozenset(
            name for name, field in fragment.fields.items() if field.type in COLLECTIONS
        )

    @cached_property
    def group_of(self) -> Mapping[str, str]:
        return {name: group for group, names in self.fragment.groups.items() for name in names}

    @cached_property
    def ordered_indexes(self) -> tuple[Index, ...]:
        """The ordered indexes: of single fields first, then compound."""
        return tuple(map(Index, self.fragment.ordered_indexes))

    @cached_property
    def element_indexes(self) -> Mapping[str, Index]:
        """The element indexes, by field."""
        fields = self.fragment.fields.values()
        return {f.name: Index((f.name,), of_elements=True) for f in fields if f.has_element_index}

    @cached_property
    def ordered_fields(self) -> frozenset[str]:
        """The fields in ordered indexes."""
        return frozenset(name for index in self.ordered_indexes for name in index.fields)

    @cached_property
    def single_names(self) -> frozenset[bytes]:
        """The names of single-field indexes, whose members are computed from one text."""
        return frozenset(i.name.encode() for i in self.ordered_indexes if i.is_single)

    @cached_property
    def multi_names(self) -> frozenset[bytes]:
        """The names of the other indexes, whose members ``multi.lua`` computes."""
        others = (*self.ordered_indexes, *self.element_indexes.values())
        return frozenset(index.name.encode() for index in others if not index.is_single)

    def partition(self, id_: str) -> int:
        """Return the partition of an object: constant, and equal in every process."""
        return crc32(id_.encode()) % self._partitions if self._partitions > 1 else 0

    def prefix(self, id_: str) -> str:
        """Return the key prefix of an object's partition."""
        return self.prefixes[self.partition(id_)]

    def taken_claim(self, constraint: bytes, holder: bytes, intent: bytes) -> TakenClaim:
        """Return a taken claim from a script's reply, which has the record's key."""
        key = holder.decode()
        id_ = next(key.removeprefix(p) for p in self.prefixes if key.startswith(p))
        return TakenClaim(constraint.decode(), id_.removeprefix("r:"), intent.decode())

    def names(self, fields: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the names in the hash to read for some fields; empty: all."""
        return () if fields is None else (*self._read_head, *fields)

    def versions(self, texts: Sequence[bytes | None]) -> dict[str, int]:
        """Return the versions of groups; absent ones are left out."""
        if all(texts):  # the usual case
            return dict(zip(self.groups, map(int, texts), strict=False))  # type: ignore[arg-type]  # all() says so
        pairs = zip(self.groups, texts, strict=False)
        return {group: int(text) for group, text in pairs if text}


LayoutOf: TypeAlias = Callable[[Fragment], Layout]
"""Finds the layout of a fragment."""


def layouts(config: SystemConfig) -> LayoutOf:
    """Return a function that creates layouts and caches them by their fragment's identity."""
    return lru_cache(maxsize=_MAX_LAYOUTS)(partial(Layout, config=config))
