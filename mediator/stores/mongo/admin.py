"""Administration: collections and indexes, and the durability that a server reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from mediator.schema.unique import constraint_name
from mediator.stores.mongo.codec import path_key
from mediator.stores.mongo.layout import Document, Layout, has_intent, layout_of
from mediator.stores.mongo.outbox.pending import WAITING
from mediator.stores.mongo.read.spans import span_after
from mediator.stores.mongo.session import STAND_IN, WRITE_CONCERNS, MongoSession, is_stand_in
from mediator.stores.port import Fragment, ServerFacts, SystemConfig

__all__ = ["build", "erase", "observe", "prepare"]

_NAMESPACE_EXISTS: Final = 48
_CLAIMS: Final = "unique "
"""Name prefix of indexes of unique constraints."""

_INDEX_PREFIXES: Final = ("compound ", "path ")
"""Name prefixes of compound indexes, and of indexes of paths within documents and maps."""

_STAND_IN_LOSS_S: Final = 1.0
_JOURNAL_MS: Final = 100
"""MongoDB writes its journal every 100 ms by default (storage.journal)."""

Client = AsyncMongoClient[dict[str, Any]]


async def prepare(
    session: MongoSession, fragment: Fragment, previous: Fragment | None = None
) -> None:
    """Create the collection of a class and its indexes; existing data stays."""
    database, layout = session.database(fragment.database), layout_of(fragment)
    try:
        await database.create_collection(fragment.stored_as, check_exists=False)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
    collection = session.collection(layout)
    if not session.is_stand_in:
        # Partial, so that the sweep finds non-empty outboxes, and writes to records whose outbox
        # stays empty do not touch the index.
        await collection.create_index(
            {"_id": 1, "creation_version": 1}, name="outbox", partialFilterExpression=WAITING
        )
    await _drop_obsolete(collection, layout)
    await build(session, fragment)
    await _match_claims(collection, layout, previous)


async def build(session: MongoSession, fragment: Fragment) -> None:
    """Build the missing indexes of a class."""
    layout = layout_of(fragment)
    collection = session.collection(layout)
    for name, field in fragment.fields.items():
        if field.index:
            await collection.create_index({layout.paths[name]: 1, "_id": 1})
    for name, paths in _named_indexes(layout):
        await collection.create_index(dict.fromkeys(paths, 1) | {"_id": 1}, name=name)


async def _drop_obsolete(collection: AsyncCollection[Document], layout: Layout) -> None:
    """Drop obsolete compound and path indexes."""
    indexes = dict(_named_indexes(layout))
    for name in await collection.index_information():
        if name.startswith(_INDEX_PREFIXES) and name not in indexes:
            await collection.drop_index(name)


def _named_indexes(layout: Layout) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the value paths of each index."""
    compound, path = _INDEX_PREFIXES
    for names in layout.fragment.indexes:
        yield f"{compound}{','.join(names)}", [layout.paths[name] for name in names]
    for name, field in layout.fragment.fields.items():
        for keys in field.indexed_keys:
            value_path = layout.path_within(name, keys)
            yield f"{path}{value_path}", [value_path]


async def _match_claims(
    collection: AsyncCollection[Document], layout: Layout, previous: Fragment | None
) -> None:
    """Create the indexes of unique constraints; drop those in neither the old nor new schema."""
    previous_constraints = (
        set(map(constraint_name, previous.unique)) if previous is not None else set[str]()
    )
    existing = await collection.index_information()
    for name in existing:
        constraint = name.removeprefix(_CLAIMS)
        if (
            name != constraint
            and constraint not in previous_constraints | layout.claim_paths.keys()
        ):
            await collection.drop_index(name)
    for constraint, path in layout.claim_paths.items():
        if constraint not in previous_constraints:
            # Objects that were deleted while there was no such constraint still have their claims.
            query = {path: {"$exists": True}, "tombstone": {"$exists": True}} | has_intent("")
            await collection.update_many(query, {"$unset": {path: ""}})
        name = f"{_CLAIMS}{constraint}"
        await collection.create_index({path: 1}, name=name, unique=True, sparse=True)


async def erase(
    session: MongoSession, layout: Layout, names: Sequence[str], after: str | None, limit: int
) -> str | None:
    """Remove fields from up to `limit` records; return the stored id of the last one."""
    collection = session.collection(layout)
    span, end = await span_after(collection, after, limit)
    paths = [f"values.{path_key(name)}" for name in names]
    has_fields = {"$or": [{path: {"$exists": True}} for path in paths]}
    await collection.update_many(span | has_fields, {"$unset": dict.fromkeys(paths, "")})
    return end


async def observe(client: Client, config: SystemConfig) -> ServerFacts:
    build = await client.admin.command("buildInfo")
    hello = await client.admin.command("hello")
    options: Mapping[str, Any] = {}
    with suppress(OperationFailure):  # the command can be unknown to the server, or forbidden
        options = await client.admin.command("getCmdLineOpts")
    loss_s: float | None
    details = {"storage": ",".join(build.get("storageEngines", ()))}
    if is_stand_in(build):
        name, loss_s = STAND_IN, _stand_in_loss(options)
    else:
        concern = WRITE_CONCERNS[config.durability]
        details["write_concern"] = str(concern["w"])
        name, loss_s = "MongoDB", _loss(options, hello, concern)
    hosts = hello.get("hosts", ())
    return ServerFacts(name, str(build["version"]), loss_s, max(len(hosts) - 1, 0), details)


def _stand_in_loss(options: Mapping[str, Any]) -> float:
    """Return the loss from the launcher's last argument, its commit interval in milliseconds.

    0: it commits before each reply. Otherwise a commit also takes time, mostly on a slow disk.
    """
    every_ms = str([*options.get("argv", ()), ""][-1])
    if not every_ms.isdigit():
        return _STAND_IN_LOSS_S
    return max(_STAND_IN_LOSS_S, int(every_ms) / 1000) if int(every_ms) else 0.0


def _loss(
    options: Mapping[str, Any], hello: Mapping[str, Any], concern: Mapping[str, Any]
) -> float | None:
    storage = options.get("parsed", {}).get("storage", {})
    if storage.get("engine") == "inMemory":
        return None
    # A majority of a set journals before it acknowledges (writeConcernMajorityJournalDefault).
    if concern.get("j", "setName" in hello):
        return 0.0
    return float(storage.get("journal", {}).get("commitIntervalMs", _JOURNAL_MS)) / 1000
