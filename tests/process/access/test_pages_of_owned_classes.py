"""Pages of a class with owners show only what their own reader may see."""

from __future__ import annotations

import pytest

from tests.process.access.answers import operator_headers
from tests.process.caching.guarded import Guarded, bearer
from tests.process.service import unique

TEXTS = ("first", "second", "third")


async def key_of(running: Guarded, subject: str, *grants: str) -> dict[str, str]:
    tenancy = running.container.mediator.tenancy
    return bearer((await tenancy.create_key("operator", subject, grants))["key"])


@pytest.fixture
async def drafts(running: Guarded) -> str:
    """A database with drafts of one owner."""
    database, operator = unique("owned"), await operator_headers(running)
    owner = {"type": "string", "required": True, "index": True}
    fields = {"author": owner, "text": {"type": "string"}}
    schema = {"classes": {"drafts": {"fields": fields, "owner_field": "author"}}}
    path = f"/admin/v1/schemas/{database}"
    answer = await running.admin.put(path, json=schema, headers=operator)
    assert answer.status_code == 200, answer.text
    ada = await key_of(running, "ada", "write")
    for text in TEXTS:
        path = f"/v1/{database}/drafts/{text}"
        assert (await running.data.put(path, json={"text": text}, headers=ada)).status_code == 201
    return database


def size_of(database: str, page: str) -> str:
    """Return the overview's text on the size of the drafts."""
    card = page.partition(f"<h3>{database}</h3>")[2].partition("</ul>")[0]
    return card.partition("<span>")[2].partition("</span>")[0]


async def test_a_size_that_one_reader_sees_is_not_shown_to_another(
    running: Guarded, drafts: str
) -> None:
    for headers, size in (
        (await operator_headers(running), "about 3 objects"),
        (await key_of(running, "bob", "read"), "about 0 objects"),
        (await key_of(running, "ada", "read"), "about 3 objects"),
        (await key_of(running, "eve", "read"), "about 0 objects"),
    ):
        page = await running.admin.get("/", headers=headers)
        assert size_of(drafts, page.text) == size


async def test_a_reader_sees_its_own_objects_without_their_plan(
    running: Guarded, drafts: str
) -> None:
    path = f"/data?database={drafts}&class=drafts"
    page = await running.admin.get(path, headers=await key_of(running, "ada", "read"))
    assert all(f">{text}</a>" in page.text for text in TEXTS)
    assert "The plan reveals the number of objects of drafts" in page.text
    page = await running.admin.get(path, headers=await key_of(running, "bob", "read"))
    assert not any(f">{text}</a>" in page.text for text in TEXTS)
    page = await running.admin.get(path, headers=await operator_headers(running))
    assert "Full plan" in page.text


async def test_a_wrong_query_of_such_a_class_has_its_own_problem(
    running: Guarded, drafts: str
) -> None:
    path = f"/data?database={drafts}&class=drafts&nothing=1"
    page = await running.admin.get(path, headers=await key_of(running, "ada", "read"))
    assert 'role="alert"' in page.text
    assert "owners" not in page.text.partition('role="alert"')[2]
