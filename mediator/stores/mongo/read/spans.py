"""Ranges of ids: steps through a collection, each of a bounded number of documents.

A command that reads a whole collection blocks the others meanwhile, because the stand-in executes
one command at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from pymongo.asynchronous.collection import AsyncCollection

from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.session import MongoSession

__all__ = ["SHORT", "is_short", "span_after", "spans"]

_SPAN_SIZE: Final = 1_000
"""Documents that the stand-in reads with one command: about five milliseconds."""

SHORT: Final = 10 * _SPAN_SIZE
"""Documents that it counts with one command, which takes as long: it sends no documents."""


async def span_after(
    collection: AsyncCollection[Document], after: str | None, size: int
) -> tuple[Document, str | None]:
    """Find the range of the next documents, in the order of their ids.

    Args:
        collection: The collection.
        after: The stored id beyond which the range begins; None: at the first.
        size: The number of documents in it.

    Returns:
        The condition that a document is in it, and its last id; None: it is open-ended, because
        there are fewer documents.
    """
    beyond = _beyond(after)
    cursor = collection.find(beyond, {"_id": 1}, sort={"_id": 1}, skip=size - 1, limit=1)
    async for last in cursor:
        return {"_id": beyond.get("_id", {}) | {"$lte": last["_id"]}}, last["_id"]
    return beyond, None


async def spans(
    session: MongoSession, layout: Layout, after: str | None = None
) -> AsyncIterator[Document]:
    """Yield the conditions of the ranges of a class beyond a stored id.

    There is one range, unless the server is the stand-in.
    """
    while session.is_stand_in:
        span, end = await span_after(session.collection(layout), after, _SPAN_SIZE)
        if end is None:
            break
        yield span
        after = end
    yield _beyond(after)


async def is_short(session: MongoSession, layout: Layout) -> bool:
    """Whether one command can count all of a class: on the stand-in, only if there are few."""
    if not session.is_stand_in:
        return True
    return await session.collection(layout).estimated_document_count() <= SHORT


def _beyond(after: str | None) -> Document:
    return {} if after is None else {"_id": {"$gt": after}}
