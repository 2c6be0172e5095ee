"""Ranges of ids: steps through a collection, each of a bounded number of documents.

What looks at a whole collection with one command keeps others from it for as long as that takes,
and the stand-in does one command at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from pymongo.asynchronous.collection import AsyncCollection

from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.session import MongoSession

__all__ = ["SHORT", "is_short", "span_after", "spans"]

_AT_ONCE: Final = 1_000
"""Documents that the stand-in looks at with one command: some five milliseconds."""

SHORT: Final = 10 * _AT_ONCE
"""Documents that it counts with one command, which takes as long: it sends none of them."""


async def span_after(
    collection: AsyncCollection[Document], after: str | None, size: int
) -> tuple[Document, str | None]:
    """Find the range that the next documents take up, in the order of their ids.

    Args:
        collection: The collection.
        after: The stored id beyond which the range begins; None: at the first.
        size: How many documents it has.

    Returns:
        The condition that a document is in it, and its last id; None: it has no end, as there are
        fewer documents.
    """
    beyond = _beyond(after)
    found = collection.find(beyond, {"_id": 1}, sort={"_id": 1}, skip=size - 1, limit=1)
    async for last in found:
        return {"_id": beyond.get("_id", {}) | {"$lte": last["_id"]}}, last["_id"]
    return beyond, None


async def spans(
    session: MongoSession, layout: Layout, after: str | None = None
) -> AsyncIterator[Document]:
    """Yield the conditions of the ranges in which a class is looked through, beyond a stored id.

    One range, unless the server is the stand-in.
    """
    while session.is_stand_in:
        span, end = await span_after(session.collection(layout), after, _AT_ONCE)
        if end is None:
            break
        yield span
        after = end
    yield _beyond(after)


async def is_short(session: MongoSession, layout: Layout) -> bool:
    """Whether one command may count all of a class: on the stand-in, only if there are few."""
    if not session.is_stand_in:
        return True
    return await session.collection(layout).estimated_document_count() <= SHORT


def _beyond(after: str | None) -> Document:
    return {} if after is None else {"_id": {"$gt": after}}
