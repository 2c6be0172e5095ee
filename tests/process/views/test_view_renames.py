"""A view of a class whose fields are renamed or dropped is built anew, under the names of now."""

from __future__ import annotations

from mediator.control.port import ChangeOptions
from tests.process.service import Service
from tests.process.views.views import BOUND_S, ViewClient, client_of, fields


async def test_copies_have_the_names_of_now(mirrored: Service) -> None:
    view = {"system": "postgres", "staleness_s": BOUND_S}
    members = {"mode": "microbatched", "materialised_view": view}
    database = await mirrored.put_schema({"articles": {"fields": fields()}}, **members)
    async with client_of(mirrored, database) as http:
        client = ViewClient(mirrored, database, http)
        await client.send("PUT", "a", {"title": "One", "hits": 1, "text": "t"})
        await client.complete()
        await client.answers("a")
        later = fields()
        later["headline"] = later.pop("title")
        later["count"] = later.pop("hits")
        rename = {"articles": {"title": "headline", "hits": "count"}}
        await mirrored.mediator.control.set_schema(
            database,
            {"classes": {"articles": {"fields": later}}, **members},
            options=ChangeOptions(rename=rename),
        )
        await client.send("PATCH", "a", {"count": 2})
        await client.complete()
        await client.answers("a")
        await client.caught_up()
        copy = await client.held("a")
        assert copy is not None
        assert copy.values == {"headline": "One", "count": 2, "text": "t"}
        read = await client.send("GET", "a", prefer="consistency=bounded")
        assert read.json() == {"id": "a", "headline": "One", "count": 2, "text": "t"}
