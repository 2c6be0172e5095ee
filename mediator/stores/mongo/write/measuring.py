"""Measuring documents that may be large: what writes have counted is too much (`sizes`)."""

from __future__ import annotations

from collections.abc import Iterable

from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.session import MongoSession
from mediator.stores.mongo.sizes import LARGEST, MEASURED, MOST

__all__ = ["measure"]


async def measure(session: MongoSession, layout: Layout, documents: Iterable[Document]) -> None:
    """Add to documents that were read in part, and may be large, how many bytes they have.

    Those that an older version has made have counted nothing.
    """
    large = {each["_id"]: each for each in documents if each.get("_bytes", MOST) > LARGEST}
    if large:
        for stored_id, size in (await session.sizes(layout, list(large))).items():
            large[stored_id][MEASURED] = size
