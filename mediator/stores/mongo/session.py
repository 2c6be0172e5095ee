"""Commands to the server, with minimal bytes and driver overhead.

Point reads and writes are sent as plain commands on borrowed connections: the driver's methods for
them take four times the processor time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, InsertOne, UpdateOne, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern

from mediator.stores.mongo.connection import DriverConnections
from mediator.stores.mongo.errors import DUPLICATE_KEY
from mediator.stores.mongo.layout import Document, Layout, database_name
from mediator.stores.mongo.write.attempt import UpdateAttempt
from mediator.stores.mongo.write.decision import ConditionalUpdate, Insertion
from mediator.stores.port import StoreRefused, StoreTimeout, SystemConfig

__all__ = ["STAND_IN", "WRITE_CONCERNS", "Lookup", "MongoSession", "is_stand_in"]

STAND_IN: Final = "mongo-java-server"

WRITE_CONCERNS: Final[Mapping[str | None, Document]] = {
    "full": {"w": "majority", "j": True},
    "second": {"w": "majority", "j": False},
    None: {"w": "majority"},
}
"""By durability; a majority, because reads of several records return only what a majority has."""

_NO_CONDITION: Final[Document] = {}
_RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read of documents.

    Attributes:
        query: The condition.
        projection: The projection.
        limit: Maximum number of documents.
    """

    query: Document
    projection: Document
    limit: int


class MongoSession:
    """A connected client; belongs to one event loop.

    Attributes:
        client: The driver's client.
        connections: Borrowed connections for point reads and writes.
        is_stand_in: Whether the server is mongo-java-server, with its defects.
    """

    def __init__(self, config: SystemConfig) -> None:
        self._config = config
        self.client: AsyncMongoClient[Document] = _client(config)
        self.connections = DriverConnections(self.client, config)
        self._databases: dict[str, AsyncDatabase[Document]] = {}
        self._write_concern = WRITE_CONCERNS[config.durability]
        self._read_concern: Document = {}
        self.is_stand_in = False

    async def start(self) -> None:
        """Connect, and find out whether the server is in a replica set."""
        self.is_stand_in = is_stand_in(await self.client.admin.command("buildInfo"))
        hello = await self.client.admin.command("hello")
        if "setName" in hello:
            # A deposed primary that does not yet know it answers local reads. A linearizable read
            # waits for a majority, without maxTimeMS for ever.
            wait_ms = round(self._config.deadline_s * 1000)
            concern = {"level": "linearizable"}
            self._read_concern = {"readConcern": concern, "maxTimeMS": wait_ms}

    async def time_us(self) -> int:
        """Return the server's time in microseconds, rounded to milliseconds."""
        hello = await self.client.admin.command("hello")
        local_time: datetime = hello["localTime"]
        return round(local_time.timestamp() * 1000) * 1000

    async def close(self) -> None:
        await self.connections.close()
        await self.client.close()

    def database(self, name: str) -> AsyncDatabase[Document]:
        database = self._databases.get(name)
        if database is None:
            database = self.client[database_name(self._config.namespace, name)]
            self._databases[name] = database
        return database

    def collection(self, layout: Layout) -> AsyncCollection[Document]:
        """Return the collection of a class, for all except point reads and writes."""
        fragment = layout.fragment
        return self.database(fragment.database).get_collection(
            fragment.stored_as,
            write_concern=WriteConcern(**self._write_concern),
            read_concern=ReadConcern("majority") if self._read_concern else None,
        )

    async def find(
        self, layout: Layout, id_: str, projection: Document, condition: Document = _NO_CONDITION
    ) -> Document | None:
        """Read one document; None if it is absent or does not satisfy the condition."""
        fragment = layout.fragment
        reply = await self.connections.command(
            self.database(fragment.database).name,
            {
                "find": fragment.stored_as,
                "filter": layout.key(id_) | condition,
                "projection": projection,
                "limit": 1,
                "singleBatch": True,
                **self._read_concern,
            },
        )
        batch = _batch(reply)
        return batch[0] if batch else None

    async def find_each(self, layout: Layout, lookup: Lookup) -> list[Document]:
        """Read documents, in one round trip unless they exceed one batch (16 MB)."""
        name = self.database(layout.fragment.database).name
        command = self._find(layout, lookup) | self._read_concern
        return await self._read_remaining(
            layout, lookup, await self.connections.command(name, command)
        )

    async def _read_remaining(
        self, layout: Layout, lookup: Lookup, reply: Mapping[str, Any]
    ) -> list[Document]:
        """Return the documents of a lookup: its first batch, and the following ones."""
        documents, name = _batch(reply), self.database(layout.fragment.database).name
        while cursor := reply["cursor"]["id"]:
            command = {"getMore": Int64(cursor), "collection": layout.fragment.stored_as}
            reply = await self.connections.command(name, command | {"batchSize": lookup.limit})
            documents += reply["cursor"]["nextBatch"]
        return documents

    async def sizes(self, layout: Layout, stored_ids: Sequence[str]) -> dict[str, int]:
        """Return the sizes of existing documents in bytes, by stored id."""
        collection = self.collection(layout).with_options(_RAW)
        cursor = collection.find({"_id": {"$in": list(stored_ids)}})
        return {document["_id"]: len(document.raw) async for document in cursor}

    async def find_and_change(
        self, layout: Layout, lookup: Lookup, steps: Sequence[Document]
    ) -> tuple[list[Document], int]:
        """Read documents, if any, and then update them, in one round trip.

        The read needs no read concern: a deposed server does not confirm the update. Its result has
        to fit into one batch: the next batch would come after the update.

        Args:
            layout: Their layout.
            lookup: The read; its limit can be 0.
            steps: The statements of an unordered `update`: the failure of one does not stop others.

        Returns:
            The documents, and the number of statements that applied.
        """
        reads = [self._find(layout, lookup)] if lookup.limit else []
        *replies, changed = await self._send(layout, *reads, self._update(layout, steps))
        return [document for reply in replies for document in _batch(reply)], changed["n"]

    async def change_and_find(
        self, layout: Layout, steps: Sequence[Document], lookup: Lookup
    ) -> list[Document]:
        """Update or upsert documents, ignoring duplicate keys, and then read documents.

        It takes one round trip; see `find_and_change` and `find_each`.
        """
        changed, reply = await self._send(
            layout, self._update(layout, steps), self._find(layout, lookup)
        )
        for error in changed.get("writeErrors", ()):
            if error["code"] != DUPLICATE_KEY:
                raise StoreRefused(f"{self._config.name} answered with error {error['code']}")
        return await self._read_remaining(layout, lookup, reply)

    def _find(self, layout: Layout, lookup: Lookup) -> Document:
        return {
            "find": layout.fragment.stored_as,
            "filter": lookup.query,
            "projection": lookup.projection,
            "limit": lookup.limit,
            # One more: the server keeps the cursor of a full batch.
            "batchSize": lookup.limit + 1,
        }

    def _update(self, layout: Layout, steps: Sequence[Document]) -> Document:
        command = {"update": layout.fragment.stored_as, "updates": steps, "ordered": False}
        return self._with_write_concern(command)

    async def modify(self, layout: Layout, attempt: UpdateAttempt) -> tuple[bool, Document | None]:
        """Run an attempt; return whether it applied, and the document of its projection."""
        document = await self._find_and_modify(
            layout,
            query=attempt.query,
            update=attempt.update,
            fields=attempt.projection,
            new=attempt.after,
            upsert=attempt.upsert,
        )
        # An upsert that neither updates nor fails by a duplicate key has inserted.
        return document is not None or attempt.upsert, document

    async def put(
        self, layout: Layout, query: Document, update: Document, projection: Document
    ) -> Document:
        """Update the document that a query selects, or insert it; return the new document."""
        document = await self._find_and_modify(
            layout, query=query, update=update, fields=projection, new=True, upsert=True
        )
        assert document is not None
        return document

    async def _find_and_modify(self, layout: Layout, **options: Any) -> Document | None:
        reply = await self._write(layout, {"findAndModify": layout.fragment.stored_as, **options})
        document: Document | None = reply.get("value")
        return document

    async def change(self, layout: Layout, changes: Sequence[tuple[Document, Document]]) -> None:
        """Update the documents that each query selects, one after the other."""
        steps = [{"q": query, "u": update, "multi": True} for query, update in changes]
        await self._write(layout, {"update": layout.fragment.stored_as, "updates": steps})

    async def apply(self, layout: Layout, step: Insertion | ConditionalUpdate) -> bool:
        """Insert, or update under a condition; return whether it applied."""
        name = layout.fragment.stored_as
        if isinstance(step, Insertion):
            command: Document = {"insert": name, "documents": [step.document]}
        else:
            command = {"update": name, "updates": [{"q": step.query, "u": step.update}]}
        reply = await self._write(layout, command)
        errors = reply.get("writeErrors")
        if not errors:
            return bool(reply["n"])
        if errors[0]["code"] == DUPLICATE_KEY:
            return False
        raise StoreRefused(f"{self._config.name} answered with error {errors[0]['code']}")

    async def apply_all(
        self, layout: Layout, steps: Sequence[Insertion | ConditionalUpdate]
    ) -> bool:
        """Apply steps to different records in any order; return whether all applied."""
        requests: list[InsertOne[Document] | UpdateOne] = [
            InsertOne(step.document)
            if isinstance(step, Insertion)
            else UpdateOne(step.query, step.update)
            for step in steps
        ]
        try:
            result = await self.collection(layout).bulk_write(requests, ordered=False)
        except BulkWriteError as error:
            self.check(error.details)
            return False
        return result.inserted_count + result.matched_count == len(requests)

    async def _write(self, layout: Layout, command: Document) -> Mapping[str, Any]:
        [reply] = await self._send(layout, self._with_write_concern(command))
        return reply

    def _with_write_concern(self, command: Document) -> Document:
        return command | {"writeConcern": self._write_concern} if self._write_concern else command

    async def _send(self, layout: Layout, *commands: Document) -> list[dict[str, Any]]:
        name = self.database(layout.fragment.database).name
        replies = await self.connections.commands(name, commands)
        for reply in replies:
            self.check(reply)
        return replies

    def check(self, reply: Mapping[str, Any]) -> None:
        """Raise `StoreTimeout` if a reply reports that a write may not be durable."""
        if reply.get("writeConcernError") or reply.get("writeConcernErrors"):
            raise StoreTimeout(f"{self._config.name} did not confirm that the write will last")


def _batch(reply: Mapping[str, Any]) -> list[Document]:
    batch: list[Document] = reply["cursor"]["firstBatch"]
    return batch


def _client(config: SystemConfig) -> AsyncMongoClient[Document]:
    milliseconds = round(config.deadline_s * 1000)
    return AsyncMongoClient(
        config.url,
        appname="portolan",
        maxPoolSize=config.pool_size,
        # Before the deadline, so that a server that is down is not reported as slow. The driver
        # ignores it if `timeoutMS` is set.
        serverSelectionTimeoutMS=milliseconds // 2,
        connectTimeoutMS=milliseconds,
        # A write that the driver resends would be counted twice by our conditions.
        retryWrites=False,
        retryReads=False,
        readPreference="primary",
        tz_aware=True,
    )


def is_stand_in(build: Mapping[str, Any]) -> bool:
    """Whether the server is mongo-java-server: unlike MongoDB it reports no build commit."""
    return build.get("implementation") == STAND_IN or "gitVersion" not in build
