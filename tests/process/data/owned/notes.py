"""A database with notes, whose objects may have owners, and a stream of words."""

from __future__ import annotations

from time import time
from typing import Any, Final

from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer
from tests.process.data.owned.drafts import TITLE, Drafts
from tests.process.service import unique

OPEN: Final[dict[str, Any]] = {
    "fields": {"author": {"type": "string", "required": True, "index": True}, "title": TITLE}
}
OWNED: Final[dict[str, Any]] = {**OPEN, "owner_field": "author"}
COPIES: Final[dict[str, Any]] = {"copies": {"fields": {"title": TITLE}}}
QUERY: Final[dict[str, Any]] = {
    "relations": {"n": {"class": "notes"}, "w": {"stream": "words"}},
    "predicates": [["n.title", "w.title"]],
    "window_s": 600,
}


class Notes(Drafts):
    """Ada and Bob may read and write; a query joins a note with a word that is its title."""

    async def set(self, **classes: Any) -> None:
        """Set the schema: copies, and these classes."""
        path, body = f"/admin/v1/schemas/{self.database}", {"classes": {**COPIES, **classes}}
        answer = await self.running.admin.put(path, json=body, headers=self.operator)
        assert answer.status_code == 200, answer.text

    async def post(self, caller: str, path: str, body: Any) -> dict[str, Any]:
        answer = await self.request(caller, "POST", path, json=body)
        assert answer.status_code < 300, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def create(self, caller: str, path: str, body: Any) -> str:
        return str((await self.post(caller, path, body))["id"])

    async def declare(self, *streams: str) -> None:
        for name in streams:
            body = {"name": name, "attributes": {"title": "string"}}
            await self.post("operator", "event-streams", body)

    async def query(self, caller: str, into: dict[str, str] | None = None) -> str:
        """Create a standing query, and wait until it is executed."""
        values = {"values": {"title": "n.title"}}
        body = QUERY if into is None else {**QUERY, "into": {**into, **values}}
        query = await self.create(caller, "standing-queries", body)
        await self.wait_for_state(f"standing-queries/{query}", "ready")
        return query

    async def write(self, title: str) -> None:
        """Have Bob write a note, which the query then finds."""
        body = {"author": "bob", "title": title}
        answer = await self.request("bob", "PUT", f"notes/{unique()}", json=body)
        assert answer.status_code == 201, answer.text
        tuples = {"tuples": [{"time_s": time(), "values": {"title": title}}]}
        await self.post("operator", "event-streams/words/tuples", tuples)

    async def state(self, path: str) -> dict[str, Any]:
        """Return a query, or a view, as the operator sees it."""
        answer = await self.request("operator", "GET", path)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def wait_for_state(self, path: str, state: str) -> None:
        async def has_state() -> bool:
            return bool((await self.state(path))["state"] == state)

        await eventually(has_state)

    async def titles(self, stream: str) -> list[str]:
        answer = await self.request("ada", "GET", f"event-streams/{stream}/tuples?after=0")
        return [tuple_["values"]["title"] for tuple_ in answer.json()["tuples"]]

    async def wait_for_text(self, path: str, text: str) -> None:
        """Wait until a response to the operator contains a text."""

        async def has_text() -> bool:
            return text in (await self.request("operator", "GET", path)).text

        await eventually(has_text)


async def notes_of(running: Guarded, notes: dict[str, Any]) -> Notes:
    """Create a database whose class of notes has this declaration."""
    tenancy, database = running.container.mediator.tenancy, unique("db")
    await tenancy.own(running.owner, database)
    keys = [
        await tenancy.create_key(running.owner, name, ["read", "write"]) for name in ("ada", "bob")
    ]
    ada, bob = (bearer(key["key"]) for key in keys)
    instance = Notes(running, database, ada, bob, await running.headers("operator", "write"))
    await instance.set(notes=notes)
    await instance.declare("words")
    return instance
