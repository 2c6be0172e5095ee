"""A fragment compiled: key names, and which names of the hash mean what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from zlib import crc32

from mediator.schema.tree import Field
from mediator.schema.types import SCALARS
from mediator.stores.port import RETENTION_S, Fragment, Read, Record, RecordState, SystemConfig
from mediator.stores.redis.codec import COLLECTIONS, decode
from mediator.stores.redis.commands import call_of, command
from mediator.stores.redis.lua import FENCE, INTENT, READ

__all__ = ["REMEMBER_MS", "TOMBSTONE_MS", "Plan", "Plans", "are_large", "records_of"]

REMEMBER_MS = RETENTION_S * 1000
TOMBSTONE_MS = (RETENTION_S + 3600) * 1000
"""Life of a tombstone: it outlasts what is remembered of the operations on its object."""

_JOINT = {b"!m": "intent", b"!j": "joint"}
"""What a record tells of writes over several, by the name in the hash."""

MOST_PLANS = 512
"""Plans kept; a routing model that is replaced leaves its own behind."""

_LARGE: Final = 2**15
"""Bytes of replies; beyond, reading them may take more than about a millisecond."""


class Plan:
    """What is worth computing once for a fragment; packing keeps `forms` and `openings` here."""

    def __init__(self, fragment: Fragment, config: SystemConfig) -> None:
        self.fragment = fragment
        self.groups = tuple(fragment.groups)
        self.head = ("!b", *(f"@{group}" for group in self.groups))
        self._read_head = (*self.head, "!m", "!j") if fragment.joint else self.head
        self._partitions = config.partitions
        tags = [f"{{{config.namespace}:{p}}}:" for p in range(config.partitions)]
        self.prefixes = [f"{tag}{fragment.database}.{fragment.stored_as}:" for tag in tags]
        self.outboxes = [f"{tag}outbox" for tag in tags]
        self._group_names = {f"@{group}".encode(): group for group in self.groups}
        self._field_names = {name.encode(): name for name in fragment.fields}
        self.what = f"{fragment.database_id}/{fragment.class_name}"
        self.positions = {group: number for number, group in enumerate(self.groups, 2)}
        self.forms: dict[Any, Any] = {}
        self.latest_form: tuple[Any, Any] = (None, None)
        self.openings: dict[Any, Any] = {}
        self.collections = frozenset(
            name for name, field in fragment.fields.items() if field.type in COLLECTIONS
        )

    @cached_property
    def group_of(self) -> Mapping[str, str]:
        """The group of each field."""
        return {name: group for group, names in self.fragment.groups.items() for name in names}

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        """The fields that have an index."""
        fields: Iterable[Field] = self.fragment.fields.values()
        return tuple(f.name for f in fields if f.index and f.type in SCALARS)

    def partition(self, id_: str) -> int:
        """Return the partition of an object: the same in every process, for good."""
        return crc32(id_.encode()) % self._partitions if self._partitions > 1 else 0

    def prefix(self, id_: str) -> str:
        """Return what the keys of an object's partition begin with."""
        return self.prefixes[self.partition(id_)]

    def names(self, fields: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the names of the hash to read for some fields; none: all there are."""
        return () if fields is None else (*self._read_head, *fields)

    def query(self, call: Read) -> bytes:
        """Pack a read; only collections need a script, to be read together with the hash."""
        prefix, names = self.prefix(call.id), self.names(call.fields)
        wanted = self.collections if call.fields is None else call.fields
        if self.collections and not self.collections.isdisjoint(wanted):
            return call_of(READ, (prefix,), (call.id, *names))
        if not names:
            return command("HGETALL", f"{prefix}r:{call.id}")
        return command("HMGET", f"{prefix}r:{call.id}", *names)

    def record(self, call: Read, reply: list[bytes] | None) -> Record | None:
        """Read the reply to `query`."""
        if not reply:
            return None
        names = self.names(call.fields)
        if names and self.collections.isdisjoint(names):
            return self._record(call.id, zip((n.encode() for n in names), reply, strict=True))
        return self.record_of(call.id, reply)

    def record_of(self, id_: str, flat: list[bytes]) -> Record | None:
        """Make a record of names and whole values in turn."""
        texts = iter(flat)
        return self._record(id_, zip(texts, texts, strict=True))

    def _record(self, id_: str, pairs: Iterable[tuple[bytes, bytes | None]]) -> Record | None:
        creation_version, versions, values, joint = None, {}, {}, {}
        for name, text in pairs:
            if text is None:
                continue
            if name in self._field_names:
                values[self._field_names[name]] = decode(text)
            elif name in self._group_names:
                versions[self._group_names[name]] = int(text)
            elif name == b"!b":
                creation_version = int(text)
            elif self.fragment.joint and name in _JOINT:
                joint[_JOINT[name]] = text.decode()
        return (
            None
            if creation_version is None
            else Record(id_, creation_version, versions, values, **joint)
        )

    def recollection(self, id_: str, operation: str) -> list[bytes]:
        """Pack what asks for a remembered operation, and for the generation of the class."""
        prefix = self.prefix(id_)
        memory = f"{prefix}o:{len(id_.encode())}:{id_}:{operation}"
        return [
            command("HGETALL", memory),
            command("GET", f"{prefix}generation"),
        ]

    def fence(self, id_: str, token: str) -> bytes:
        """Pack what fences a record against the writes of a token."""
        arguments = (id_, token, REMEMBER_MS, *self.head[1:])
        return call_of(FENCE, (self.prefix(id_),), arguments)

    def marking(self, partition: int, ids: Sequence[str], what: str, intent: str) -> bytes:
        """Pack what sets an intent on records of a partition, takes it away, or only looks."""
        arguments = (what, intent, TOMBSTONE_MS, len(self.groups), *self.head[1:], *ids)
        return call_of(INTENT, (self.prefixes[partition],), arguments)

    def standing(self, texts: list[bytes | None]) -> RecordState:
        """Read what is told of one record in the reply to `marking`."""
        intent, creation_version, *versions = texts
        born = None if creation_version is None else int(creation_version)
        return RecordState(born, self.versions(versions), (intent or b"").decode())

    def versions(self, texts: Sequence[bytes | None]) -> dict[str, int]:
        """Read the versions of all groups; those that are not there are left out."""
        if all(texts):  # as a rule
            return dict(zip(self.groups, map(int, texts), strict=False))  # type: ignore[arg-type]  # all() says so
        pairs = zip(self.groups, texts, strict=False)
        return {group: int(text) for group, text in pairs if text}

    def values(self, flat: list[bytes]) -> dict[str, Any]:
        """Return the fields among names and whole values in turn."""
        texts = iter(flat)
        return {
            self._field_names[name]: decode(text)
            for name, text in zip(texts, texts, strict=True)
            if name in self._field_names
        }


class Plans:
    """The plans of the fragments in use, found by the fragment's identity."""

    def __init__(self, config: SystemConfig) -> None:
        self._config = config
        self._plans: dict[int, Plan] = {}

    def of(self, fragment: Fragment) -> Plan:
        """Return the plan of a fragment."""
        # A plan holds its fragment, so the id() of a key is not given to another one.
        plan = self._plans.get(id(fragment))
        return plan if plan is not None else self._compiled(fragment)

    def _compiled(self, fragment: Fragment) -> Plan:
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        plan = self._plans[id(fragment)] = Plan(fragment, self._config)
        return plan


def records_of(
    plans: Sequence[Plan], calls: Sequence[Read], replies: Sequence[list[bytes] | None]
) -> list[Record | None]:
    """Read the replies to queries."""
    return [
        plan.record(call, reply) for plan, call, reply in zip(plans, calls, replies, strict=True)
    ]


def are_large(replies: Iterable[Sequence[bytes | None] | None]) -> bool:
    """Whether it takes more than about a millisecond to read what a server sent of records."""
    return sum(len(text) for flat in replies if flat for text in flat if text) > _LARGE
