"""A database of products whose fields are renamed, and what is asked of it."""

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
    """Return fields on one system, or on all three: a name, a number and a set of words."""
    groups = system == "all"
    on = dict.fromkeys(("name", "price", "tags"), system)
    if groups:
        on = {"name": "redis", "price": "postgres", "tags": "mongo"}
    members = {role: {"group": f"g_{role}"} if groups else {} for role in on}
    return {
        "name": field_on(on["name"], **members["name"]),
        number: field_on(on["price"], "integer", index=True, **members["price"]),
        words: field_on(on["tags"], "set", items="string", **members["tags"]),
        **more,
    }


def classes(system: str, number: str = "price", words: str = "tags", **more: Any) -> dict[str, Any]:
    return {"products": {"fields": fields(system, number, words, **more)}}


RENAME: Final = ChangeOptions(rename={"products": {"price": "unit_price", "tags": "labels"}})


async def renamed(
    of: Service, database: str, system: str, options: ChangeOptions = RENAME, **more: Any
) -> SchemaChange:
    document = {"classes": classes(system, "unit_price", "labels", **more)}
    return await of.mediator.control.set_schema(database, document, options=options)


async def filled(of: Service, system: str) -> str:
    database = await of.put_schema(classes(system))
    for id_, price in PRICES.items():
        await of.create(database, "products", id_, name=id_, price=price, tags=["x"])
    return database


async def found(of: Service, database: str, **members: Any) -> list[str]:
    query = Query(database, "products", allow_scan=True, **members)
    return [item.outcome.id for item in (await of.mediator.data.query(query, STRONG)).items]


async def update(of: Service, database: str, id_: str, *calls: OperatorCall, **of_: Any) -> None:
    await of.mediator.data.write(
        Update(database, "products", id_, unique("op"), operators=calls, **of_)
    )
