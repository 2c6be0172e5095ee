"""A database of products whose fields are renamed, and queries and updates of it."""

from __future__ import annotations

from typing import Any, Final

from mediator.control.port import ChangeOptions, SchemaChange
from mediator.model.operations import Update
from mediator.model.operators import OperatorCall
from mediator.model.query import Query
from mediator.routing.freshness import STRONG
from tests.process.service import Service, field_on, unique

SYSTEMS: Final = ("redis", "postgres", "mongo")
PRICES: Final = {"a": 1, "b": 2, "c": 3}


def fields(system: str, number: str, words: str, **more: Any) -> dict[str, Any]:
    """Return a string, an integer and a set field, on one system or spread over all three."""
    is_split = system == "all"
    systems = dict.fromkeys(("name", "price", "tags"), system)
    if is_split:
        systems = {"name": "redis", "price": "postgres", "tags": "mongo"}
    members = {role: {"group": f"g_{role}"} if is_split else {} for role in systems}
    return {
        "name": field_on(systems["name"], **members["name"]),
        number: field_on(systems["price"], "integer", index=True, **members["price"]),
        words: field_on(systems["tags"], "set", items="string", **members["tags"]),
        **more,
    }


def classes(system: str, number: str = "price", words: str = "tags", **more: Any) -> dict[str, Any]:
    return {"products": {"fields": fields(system, number, words, **more)}}


RENAME: Final = ChangeOptions(rename={"products": {"price": "unit_price", "tags": "labels"}})


async def rename(
    mediator: Service, database: str, system: str, options: ChangeOptions = RENAME, **more: Any
) -> SchemaChange:
    document = {"classes": classes(system, "unit_price", "labels", **more)}
    return await mediator.mediator.control.set_schema(database, document, options=options)


async def fill_database(mediator: Service, system: str) -> str:
    database = await mediator.put_schema(classes(system))
    for id_, price in PRICES.items():
        await mediator.create(database, "products", id_, name=id_, price=price, tags=["x"])
    return database


async def query_ids(mediator: Service, database: str, **members: Any) -> list[str]:
    query = Query(database, "products", allow_scan=True, **members)
    return [item.outcome.id for item in (await mediator.mediator.data.query(query, STRONG)).items]


async def update(
    mediator: Service, database: str, id_: str, *calls: OperatorCall, **options: Any
) -> None:
    await mediator.mediator.data.write(
        Update(database, "products", id_, unique("op"), operators=calls, **options)
    )
