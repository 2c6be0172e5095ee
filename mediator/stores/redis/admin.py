"""Administration: requirements on the server, and preparing or dropping a class."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from mediator.stores.port import ServerFacts, StoreRefused
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.scripts import DROP, ERASE, FILL
from redis_connection.commands import command

__all__ = [
    "add_indexes",
    "drop_class",
    "erase",
    "facts_of",
    "fill_indexes",
    "refuse_unfit",
    "remove_indexes",
    "request_durability",
    "settings_of",
]

_APPENDFSYNC: Final = {"full": "always", "second": "everysec"}
"""The server's setting for each durability."""

_MIN_VERSION: Final = (6, 2)
_SECONDS: Final = {"always": 0.0, "everysec": 1.0}
_INDEX_SETS: Final = ("indexed", "indexed.multi")
"""Keys of the sets of indexes that writes maintain: of single fields, and the others."""

_BATCH: Final = 200
"""Records handled by one script, so that it does not block the server for long."""


async def settings_of(client: CommandClient) -> dict[str, str]:
    """Return the settings of INFO and CONFIG GET by name; CONFIG can be forbidden."""
    (info,) = await client.execute([command("INFO")])
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    settings = {name: value for name, colon, value in lines if colon}
    with suppress(StoreRefused):
        (config,) = await client.execute([command("CONFIG", "GET", "append*")])
        texts = [text.decode(errors="replace") for text in config]
        settings.update(zip(texts[::2], texts[1::2], strict=True))
    return settings


async def request_durability(client: CommandClient, durability: str | None) -> None:
    """Set how often the append-only file is flushed, if CONFIG is not forbidden."""
    appendfsync = _APPENDFSYNC.get(durability or "")
    if appendfsync is not None:
        with suppress(StoreRefused):
            await client.execute(
                [command("CONFIG", "SET", "appendfsync", appendfsync)], writes=True
            )


def facts_of(settings: Mapping[str, str]) -> ServerFacts:
    names = ("appendonly", "appendfsync", "aof_enabled", "maxmemory", "maxmemory_policy")
    replicas = settings.get("connected_slaves")
    return ServerFacts(
        server=_product(settings),
        version=_version(settings),
        durability_s=_durability_s(settings),
        replicas=None if replicas is None else int(replicas),
        details={name: settings[name] for name in names if name in settings},
    )


def refuse_unfit(settings: Mapping[str, str]) -> None:
    """Raise `StoreRefused` for a server that is too old or evicts records."""
    version = settings.get("redis_version", "0")
    if _numbers(version) < _MIN_VERSION:
        raise StoreRefused(f"{_product(settings)} {version} is older than 6.2")
    policy = settings.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        raise StoreRefused(f"maxmemory-policy {policy} evicts records; set it to noeviction")


def _product(settings: Mapping[str, str]) -> str:
    return settings.get("server_name", "redis")


def _version(settings: Mapping[str, str]) -> str:
    product = _product(settings)
    return settings.get(f"{product}_version") or settings.get("redis_version", "unknown")


def _durability_s(settings: Mapping[str, str]) -> float | None:
    is_persistent = settings.get("appendonly") == "yes" or settings.get("aof_enabled") == "1"
    return _SECONDS.get(settings.get("appendfsync", "")) if is_persistent else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


async def fill_indexes(
    client: CommandClient, layout: Layout, on_partition: Callable[[int], None]
) -> None:
    """Add existing records to new indexes; `on_partition` gets each partition's number."""
    for number, prefix in enumerate(layout.prefixes):
        on_partition(number)
        single, multi, filled = await _indexes(client, prefix)
        # An index that is filled but not maintained is left over from a failed removal.
        present = filled & (single | multi)
        await add_indexes(
            client, prefix, layout.single_names - present, layout.multi_names - present
        )


async def remove_indexes(client: CommandClient, layout: Layout, previous: Layout | None) -> None:
    """Remove obsolete indexes.

    The previous indexes stay: replicas search by them until they notice the change.
    """
    retained = previous or layout
    for prefix in layout.prefixes:
        single, multi, filled = await _indexes(client, prefix)
        stale = single - layout.single_names - (retained.single_names - layout.multi_names)
        stale |= multi - layout.multi_names - (retained.multi_names - layout.single_names)
        # An index that is filled but not maintained is left over from a failed removal.
        stale |= filled - single - multi
        await _remove(client, prefix, stale)


async def _indexes(client: CommandClient, prefix: str) -> tuple[set[bytes], ...]:
    """Return the names of maintained indexes, of both kinds, and of filled ones."""
    keys = [f"{prefix}{name}" for name in (*_INDEX_SETS, "filled")]
    return tuple(map(set, await client.execute([command("SMEMBERS", key) for key in keys])))


async def add_indexes(
    client: CommandClient, prefix: str, single: frozenset[bytes], multi: frozenset[bytes]
) -> None:
    names = sorted(single | multi)
    if not names:
        return
    # Writes maintain the indexes from here on; existing records are added now.
    for key, added in zip(_INDEX_SETS, (single, multi), strict=True):
        if added:
            await _execute(client, "SADD", f"{prefix}{key}", *added)
    last: bytes | None = b""
    while last is not None:
        (last,) = await client.execute([FILL.call((prefix,), last, _BATCH, *names)], writes=True)
    # Only at the end: after a failure, the next call fills the indexes again.
    await _execute(client, "SADD", f"{prefix}filled", *names)


async def _remove(client: CommandClient, prefix: str, names: set[bytes]) -> None:
    if names:
        # Before the indexes are removed, so that no write adds to them any more.
        for key in (*_INDEX_SETS, "filled"):
            await _execute(client, "SREM", f"{prefix}{key}", *names)
        await _unlink_indexes(client, prefix, names)


async def drop_class(client: CommandClient, layout: Layout) -> None:
    """Remove records, tombstones and indexes; remembered operations expire."""
    for prefix in layout.prefixes:
        # Operations are remembered with their generation, so the old ones are ignored from here on.
        await _execute(client, "INCR", f"{prefix}generation")
        removed = 1
        while removed:
            (removed,) = await client.execute([DROP.call((prefix,), _BATCH)], writes=True)
        single, multi, _ = await _indexes(client, prefix)
        await _unlink_indexes(client, prefix, single | multi)
        await _execute(client, "UNLINK", *(f"{prefix}{key}" for key in (*_INDEX_SETS, "filled")))
    await _execute(client, "UNLINK", layout.claims_key)


async def erase(
    client: CommandClient, layout: Layout, names: Sequence[str], after: str | None, limit: int
) -> str | None:
    """Remove fields from up to `limit` records; return the next call's `after` (partition, id)."""
    number, _, last = (after or "0:").partition(":")
    partition = int(number)
    call = ERASE.call((layout.prefixes[partition],), last, limit, *names)
    (last_id,) = await client.execute([call], writes=True)
    if last_id is not None:
        return f"{partition}:{last_id.decode()}"
    return f"{partition + 1}:" if partition + 1 < len(layout.prefixes) else None


async def _unlink_indexes(client: CommandClient, prefix: str, names: set[bytes]) -> None:
    if names:
        await _execute(client, "UNLINK", *(f"{prefix}i.".encode() + name for name in names))


async def _execute(client: CommandClient, *arguments: str | bytes) -> None:
    await client.execute([command(*arguments)], writes=True)
