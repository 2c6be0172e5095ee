"""Administration: collections and indexes, and what a server reports of its durability."""

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
"""What the names of the indexes of unique constraints begin with."""

_NAMED: Final = ("compound ", "path ")
"""The same of compound indexes, and of those of paths within documents and maps."""

_STAND_IN_LOSS_S: Final = 1.0
_JOURNAL_MS: Final = 100
"""MongoDB writes its journal every 100 ms by default (storage.journal)."""

Client = AsyncMongoClient[dict[str, Any]]


async def prepare(
    session: MongoSession, fragment: Fragment, previous: Fragment | None = None
) -> None:
    """Make the collection of a class and its indexes; existing data stays."""
    database, layout = session.database(fragment.database), layout_of(fragment)
    try:
        await database.create_collection(fragment.stored_as, check_exists=False)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
    collection = session.collection(layout)
    if not session.is_stand_in:
        # Partial, so that the sweep finds the outboxes that are not empty, and writes to records
        # whose outbox stays empty do not touch the index.
        await collection.create_index(
            {"_id": 1, "creation_version": 1}, name="outbox", partialFilterExpression=WAITING
        )
    await _drop_named(collection, layout)
    await build(session, fragment)
    await _match_claims(collection, layout, previous)


async def build(session: MongoSession, fragment: Fragment) -> None:
    """Build the indexes of a class that are not there."""
    layout = layout_of(fragment)
    collection = session.collection(layout)
    for name, field in fragment.fields.items():
        if field.index:
            await collection.create_index({layout.paths[name]: 1, "_id": 1})
    for name, paths in _named_indexes(layout):
        await collection.create_index(dict.fromkeys(paths, 1) | {"_id": 1}, name=name)


async def _drop_named(collection: AsyncCollection[Document], layout: Layout) -> None:
    """Drop the compound indexes, and those of paths, that are no more."""
    wanted = dict(_named_indexes(layout))
    for name in await collection.index_information():
        if name.startswith(_NAMED) and name not in wanted:
            await collection.drop_index(name)


def _named_indexes(layout: Layout) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each index, and the paths of the values that it has."""
    compound, path = _NAMED
    for names in layout.fragment.indexes:
        yield f"{compound}{','.join(names)}", [layout.paths[name] for name in names]
    for name, field in layout.fragment.fields.items():
        for keys in field.indexed_keys:
            at = layout.path_within(name, keys)
            yield f"{path}{at}", [at]


async def _match_claims(
    collection: AsyncCollection[Document], layout: Layout, previous: Fragment | None
) -> None:
    """Make the indexes of unique constraints; drop those that were in force neither before."""
    before = set(map(constraint_name, previous.unique)) if previous is not None else set[str]()
    there = await collection.index_information()
    for name in there:
        constraint = name.removeprefix(_CLAIMS)
        if name != constraint and constraint not in before | layout.claim_paths.keys():
            await collection.drop_index(name)
    for constraint, path in layout.claim_paths.items():
        if constraint not in before:
            # Objects that were deleted without the constraint have their claims still.
            query = {path: {"$exists": True}, "tombstone": {"$exists": True}} | has_intent("")
            await collection.update_many(query, {"$unset": {path: ""}})
        name = f"{_CLAIMS}{constraint}"
        await collection.create_index({path: 1}, name=name, unique=True, sparse=True)


async def erase(
    session: MongoSession, layout: Layout, names: Sequence[str], after: str | None, limit: int
) -> str | None:
    """Remove fields from up to `limit` records; return the stored id of the last of them."""
    collection = session.collection(layout)
    span, end = await span_after(collection, after, limit)
    paths = [f"values.{path_key(name)}" for name in names]
    held = {"$or": [{path: {"$exists": True}} for path in paths]}
    await collection.update_many(span | held, {"$unset": dict.fromkeys(paths, "")})
    return end


async def observe(client: Client, config: SystemConfig) -> ServerFacts:
    build = await client.admin.command("buildInfo")
    hello = await client.admin.command("hello")
    options: Mapping[str, Any] = {}
    with suppress(OperationFailure):  # a server may not know the command, or not allow it to us
        options = await client.admin.command("getCmdLineOpts")
    lost: float | None
    details = {"storage": ",".join(build.get("storageEngines", ()))}
    if is_stand_in(build):
        name, lost = STAND_IN, _stand_in_loss(options)
    else:
        concern = WRITE_CONCERNS[config.durability]
        details["write_concern"] = str(concern["w"])
        name, lost = "MongoDB", _loss(options, hello, concern)
    hosts = hello.get("hosts", ())
    return ServerFacts(name, str(build["version"]), lost, max(len(hosts) - 1, 0), details)


def _stand_in_loss(options: Mapping[str, Any]) -> float:
    """Our launcher is given, as its last argument, how often it commits (milliseconds).

    0: before each answer. Commits at a distance take time themselves, on a slow disk most of it.
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
