"""A view of a class whose fields are renamed or dropped is rebuilt under the current names."""

from __future__ import annotations

from mediator.control.port import ChangeOptions
from tests.process.service import Service
from tests.process.views.views import BOUND_S, ViewClient, client_of, fields


async def test_copies_have_the_current_names(mirrored: Service) -> None:
    view = {"system": "postgres", "staleness_s": BOUND_S}
    members = {"mode": "microbatched", "materialised_view": view}
    database = await mirrored.put_schema({"articles": {"fields": fields()}}, **members)
    async with client_of(mirrored, database) as http:
        client = ViewClient(mirrored, database, http)
        await client.send("PUT", "a", {"title": "One", "hits": 1, "text": "t"})
        await client.wait_until_complete()
        await client.wait_until_answered("a")
        new_fields = fields()
        new_fields["headline"] = new_fields.pop("title")
        new_fields["count"] = new_fields.pop("hits")
        rename = {"articles": {"title": "headline", "hits": "count"}}
        await mirrored.mediator.control.set_schema(
            database,
            {"classes": {"articles": {"fields": new_fields}}, **members},
            options=ChangeOptions(rename=rename),
        )
        await client.send("PATCH", "a", {"count": 2})
        await client.wait_until_complete()
        await client.wait_until_answered("a")
        await client.wait_until_caught_up()
        copy = await client.read_copy("a")
        assert copy is not None
        assert copy.values == {"headline": "One", "count": 2, "text": "t"}
        answer = await client.send("GET", "a", prefer="consistency=bounded")
        assert answer.json() == {"id": "a", "headline": "One", "count": 2, "text": "t"}
