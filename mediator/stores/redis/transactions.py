"""Write intents on many records (`Lockable`): one script call for each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mediator.stores.port import RecordKey, RecordState
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import TOMBSTONE_MS, Layout, LayoutOf
from mediator.stores.redis.scripts import INTENT
from mediator.stores.redis.write.arguments import length_prefixed
from mediator.stores.redis.write.batches import MAX_WRITES

__all__ = ["change_intents"]

_READ_ACTIONS: Final = ("look", "redo")


async def change_intents(
    client: CommandClient,
    layout_of: LayoutOf,
    keys: Sequence[RecordKey],
    action: str,
    intent: str,
    redo: str = "",
) -> list[RecordState]:
    """Set, remove or only read an intent (see ``intent.lua``); return the resulting states."""
    if not keys:
        return []
    batches = list(_batches_of(layout_of, keys))
    arguments = (action, intent, TOMBSTONE_MS, redo)
    with refuse_unstorable:
        commands = [_command(*batch, arguments) for batch in batches]
    replies = await client.execute(commands, writes=action not in _READ_ACTIONS)
    states: dict[RecordKey, RecordState] = {}
    for (layout, _, ids), reply in zip(batches, replies, strict=True):
        for id_, texts in zip(ids, reply, strict=True):
            states[layout.fragment, id_] = _state(layout, texts)
    return [states[key] for key in keys]


def _batches_of(
    layout_of: LayoutOf, keys: Sequence[RecordKey]
) -> Iterator[tuple[Layout, int, Sequence[str]]]:
    """Yield layout, partition and ids of batches, each too short to block the server for long."""
    ids_of: dict[tuple[Layout, int], list[str]] = {}
    for fragment, id_ in keys:
        layout = layout_of(fragment)
        ids_of.setdefault((layout, layout.partition(id_)), []).append(id_)
    for (layout, partition), ids in ids_of.items():
        for at in range(0, len(ids), MAX_WRITES):
            yield layout, partition, ids[at : at + MAX_WRITES]


def _command(
    layout: Layout, partition: int, ids: Sequence[str], arguments: tuple[str | int, ...]
) -> bytes:
    names = (*length_prefixed(layout.head[1:]), *length_prefixed(layout.constraints))
    keys = (layout.prefixes[partition], layout.claims_key)
    return INTENT.call(keys, *arguments, *names, *ids)


def _state(layout: Layout, texts: Sequence[bytes | None]) -> RecordState:
    intent, joint, creation_version, *tail = texts
    # The intent's redo record follows the versions, if it was read.
    versions, (redo, *_) = tail[: len(layout.groups)], [*tail[len(layout.groups) :], None]
    return RecordState(
        None if creation_version is None else int(creation_version),
        layout.versions(versions),
        _text(intent),
        _text(joint),
        _text(redo),
    )


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode()
