"""Histories of schemas that tests compare before and after a restoration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.catalogue.schema_revisions import MAX_REVISIONS, SchemaRevision
from tests.process.data.pinned.shop import Shop
from tests.process.service import Service

__all__ = ["documents", "history", "restored_shop", "versions"]


def restored_shop(service: Service, database: str) -> Shop:
    """Return the shop of a restored database."""
    shop = Shop.of(service)
    shop.database = database
    return shop


async def history(shop: Shop) -> Sequence[SchemaRevision]:
    control = shop.service.mediator.control
    return await control.schema_revisions(shop.database, None, 2 * MAX_REVISIONS)


async def versions(shop: Shop) -> list[int]:
    return [revision.version for revision in await history(shop)]


async def documents(shop: Shop) -> list[dict[str, Any]]:
    control = shop.service.mediator.control
    numbers = await versions(shop)
    return [(await control.schema_revision(shop.database, n))[1] for n in numbers]
