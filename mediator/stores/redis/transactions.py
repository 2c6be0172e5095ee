"""Write intents on many records (`Lockable`): one call of a script for those of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mediator.stores.port import RecordKey, RecordState
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import TOMBSTONE_MS, Layout, LayoutOf
from mediator.stores.redis.scripts import INTENT
from mediator.stores.redis.write.arguments import listed
from mediator.stores.redis.write.batches import MOST_WRITES

__all__ = ["change_intents"]

_READING: Final = ("look", "redo")


async def change_intents(
    client: CommandClient,
    layout_of: LayoutOf,
    keys: Sequence[RecordKey],
    action: str,
    intent: str,
    redo: str = "",
) -> list[RecordState]:
    """Set an intent, remove it, or only read it (see ``intent.lua``); return the states then."""
    if not keys:
        return []
    batches = list(_batches_of(layout_of, keys))
    what = (action, intent, TOMBSTONE_MS, redo)
    with refuse_unstorable:
        commands = [_command(*batch, what) for batch in batches]
    replies = await client.execute(commands, writes=action not in _READING)
    states: dict[RecordKey, RecordState] = {}
    for (layout, _, ids), reply in zip(batches, replies, strict=True):
        for id_, texts in zip(ids, reply, strict=True):
            states[layout.fragment, id_] = _state(layout, texts)
    return [states[key] for key in keys]


def _batches_of(
    layout_of: LayoutOf, keys: Sequence[RecordKey]
) -> Iterator[tuple[Layout, int, Sequence[str]]]:
    """Yield layout, partition and ids of batches, each short enough not to hold the server up."""
    ids_of: dict[tuple[Layout, int], list[str]] = {}
    for fragment, id_ in keys:
        layout = layout_of(fragment)
        ids_of.setdefault((layout, layout.partition(id_)), []).append(id_)
    for (layout, partition), ids in ids_of.items():
        for at in range(0, len(ids), MOST_WRITES):
            yield layout, partition, ids[at : at + MOST_WRITES]


def _command(
    layout: Layout, partition: int, ids: Sequence[str], what: tuple[str | int, ...]
) -> bytes:
    names = (*listed(layout.head[1:]), *listed(layout.constraints))
    keys = (layout.prefixes[partition], layout.claims_key)
    return INTENT.call(keys, *what, *names, *ids)


def _state(layout: Layout, texts: Sequence[bytes | None]) -> RecordState:
    intent, joint, creation_version, *others = texts
    # Behind the versions is what came with the intent, if that was read.
    versions, (redo, *_) = others[: len(layout.groups)], [*others[len(layout.groups) :], None]
    return RecordState(
        None if creation_version is None else int(creation_version),
        layout.versions(versions),
        _text(intent),
        _text(joint),
        _text(redo),
    )


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode()
