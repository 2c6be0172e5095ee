"""Measuring documents that may be large: what writes have counted is too much (`sizes`)."""

from __future__ import annotations

from collections.abc import Iterable

from mediator.stores.mongo import sizes
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.session import MongoSession

__all__ = ["measure"]


async def measure(session: MongoSession, layout: Layout, documents: Iterable[Document]) -> None:
    """Add to documents that were read in part, and may be large, how many bytes they have.

    Those that an older version has made have counted nothing.
    """
    counted = ((each, each.get("_bytes", sizes.MOST)) for each in documents)
    large = {each["_id"]: each for each, count in counted if count > sizes.LARGEST}
    if large:
        for stored_id, size in (await session.sizes(layout, list(large))).items():
            large[stored_id][sizes.MEASURED] = size
