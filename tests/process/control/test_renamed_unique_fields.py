"""Renamed fields of unique constraints: existing claims stay valid."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mediator.base.errors import AlreadyExists, Conflict
from mediator.control.port import ChangeOptions
from mediator.model.operations import Delete, Put, Update
from mediator.schema.types import Values
from tests.process.service import Service, field_on, unique

RENAME: Final = ChangeOptions(
    rename={"people": {"email": "mail", "name": "surname", "notes": "remarks"}}
)


def classes(system: str, elsewhere: str, email: str, name: str, notes: str) -> dict[str, Any]:
    fields = {
        email: field_on(system, unique=True),
        "country": field_on(system),
        name: field_on(system),
        notes: field_on(elsewhere, group="notes"),
    }
    return {"people": {"fields": fields, "unique": [["country", name]]}}


@pytest.mark.parametrize(
    ("system", "elsewhere"),
    [("redis", "redis"), ("postgres", "postgres"), ("mongo", "mongo"), ("postgres", "redis")],
)
async def test_values_stay_unique(mediator: Service, system: str, elsewhere: str) -> None:
    data = mediator.mediator.data
    database = await mediator.put_schema(classes(system, elsewhere, "email", "name", "notes"))
    ada = {"email": "ada@x", "country": "UK", "name": "Ada", "notes": "first"}
    await mediator.create(database, "people", "ada", **ada)
    document = {"classes": classes(system, elsewhere, "mail", "surname", "remarks")}
    change = await mediator.mediator.control.set_schema(database, document, options=RENAME)
    assert not change.moves

    async def put(id_: str, **values: Any) -> None:
        await data.write(Put(database, "people", id_, unique("op"), values=values))

    with pytest.raises(Conflict) as refused:
        await put("ben", mail="ada@x", remarks="second")
    assert refused.value.locations[0].pointer == "/mail"
    with pytest.raises(Conflict) as refused:
        await put("ben", country="UK", surname="Ada")
    assert [location.pointer for location in refused.value.locations] == ["/country", "/surname"]
    await put("ben", mail="ben@x", country="UK", surname="Ben", remarks="second")
    update: Values = {"mail": "ada@x", "remarks": "third"}
    with pytest.raises(Conflict):
        await data.write(Update(database, "people", "ben", unique("op"), values=update))
    ben = await mediator.get(database, "people", "ben")
    assert ben.values is not None
    assert ben.values["mail"] == "ben@x"

    await put("ada", mail="countess@x", country="UK", surname="Lovelace")
    await put("eve", mail="ada@x", country="UK", surname="Ada")
    await data.write(Delete(database, "people", "eve", unique("op")))
    await mediator.create(database, "people", "eve", mail="ada@x")
    with pytest.raises(AlreadyExists):
        await mediator.create(database, "people", "eve", mail="other@x")
