"""The refusal of a deletion by foreign keys names only objects that the sender may read."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.caching.guarded import bearer
from tests.process.data.owned.drafts import Drafts
from tests.process.service import unique

AUTHOR: Final = {"type": "reference", "to": "authors", "on_delete": "refuse", "index": True}
OWNER: Final = {"type": "string", "required": True, "index": True}
SCHEMA: Final[dict[str, Any]] = {
    "classes": {
        "authors": {},
        "articles": {"fields": {"author": AUTHOR}},
        "drafts": {"owner_field": "owner", "fields": {"author": AUTHOR, "owner": OWNER}},
    }
}
VISIBLE: Final = {
    "operator": {"articles", "drafts"},
    "ada": {"articles"},  # the draft is Bob's
    "writer": set[str](),  # of authors alone
}


@pytest.fixture(scope="module")
async def senders(drafts: Drafts) -> dict[str, dict[str, str]]:
    """The headers of the senders; `database` has the path."""
    running, database = drafts.running, unique("db")
    await running.container.mediator.tenancy.own(running.owner, database)
    operator = drafts.operator
    path = f"/admin/v1/schemas/{database}"
    assert (await running.admin.put(path, json=SCHEMA, headers=operator)).is_success
    writer = bearer(await running.key(f"write:{database}/authors"))
    for path, body in {
        "authors/a": {},
        "articles/an-article": {"author": "a"},
        "drafts/bobs-draft": {"author": "a", "owner": "bob"},
    }.items():
        answer = await running.data.put(f"/v1/{database}/{path}", json=body, headers=operator)
        assert answer.is_success, answer.text
    keys = {"operator": operator, "ada": drafts.ada, "writer": writer}
    return {**keys, "database": {"path": f"/v1/{database}"}}


@pytest.mark.parametrize("who", VISIBLE)
async def test_a_refusal_names_only_objects_that_its_sender_may_read(
    drafts: Drafts, senders: dict[str, dict[str, str]], who: str
) -> None:
    data, path, headers = drafts.running.data, senders["database"]["path"], senders[who]
    deletion = {"op": "delete", "class": "authors", "id": "a"}
    single = await data.delete(f"{path}/authors/a", headers=headers)
    transaction = await data.post(
        f"{path}/transactions", json={"operations": [deletion]}, headers=headers
    )
    batch = await data.post(f"{path}/batch", json={"operations": [deletion]}, headers=headers)
    many = await data.delete(f"{path}/authors?all=true", headers=headers)
    assert (single.status_code, transaction.status_code) == (409, 409)
    problems = [single.json(), transaction.json(), batch.json()[0]["problem"]]
    if many.is_success:  # who may not read may not delete by a condition either
        problems += many.json()["problems"]
    for problem in problems:
        assert problem["type"] == "/problems/still-referenced"
        assert {reference["class"] for reference in problem.get("references", ())} == VISIBLE[who]
        text = str(problem)
        assert ("bobs-draft" in text) == ("drafts" in VISIBLE[who])
        assert ("an-article" in text) == ("articles" in VISIBLE[who])


async def test_owners_refer_from_their_own_objects(
    drafts: Drafts, senders: dict[str, dict[str, str]]
) -> None:
    data, path, headers = drafts.running.data, senders["database"]["path"], senders["ada"]
    address = f"{path}/drafts/adas"
    created = await data.put(address, json={"author": "a"}, headers=headers)
    assert created.status_code == 201, created.text
    merge = {**headers, "content-type": "application/merge-patch+json"}
    for author, status in (("nobody", 409), ("a", 200), (None, 200)):
        answer = await data.patch(address, json={"author": author}, headers=merge)
        assert answer.status_code == status, answer.text
    foreign = await data.patch(f"{path}/drafts/bobs-draft", json={"author": "a"}, headers=merge)
    assert foreign.status_code == 404
    assert (await data.delete(address, headers=headers)).status_code == 204
