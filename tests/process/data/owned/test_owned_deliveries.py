"""Results of standing queries go into a class with owners for its administrators only."""

from __future__ import annotations

from typing import Any

from tests.process.data.owned.drafts import Drafts

STREAM = {"name": "words", "attributes": {"title": "string"}}
QUERY: dict[str, Any] = {
    "relations": {"n": {"class": "notes"}, "w": {"stream": "words"}},
    "predicates": [["n.title", "w.title"]],
    "window_s": 1,
    "into": {"class": "drafts", "values": {"author": "w.title", "title": "w.title"}},
}


async def test_a_caller_who_may_not_write_all_objects_creates_no_query_into_a_class(
    drafts: Drafts,
) -> None:
    answer = await drafts.request("operator", "POST", "event-streams", json=STREAM)
    assert answer.status_code == 201, answer.text
    refused = await drafts.request("ada", "POST", "standing-queries", json=QUERY)
    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")
    # She may read.
    reading_only = {name: member for name, member in QUERY.items() if name != "into"}
    allowed = await drafts.request("ada", "POST", "standing-queries", json=reading_only)
    assert allowed.status_code == 201, allowed.text
    created = await drafts.request("operator", "POST", "standing-queries", json=QUERY)
    assert created.status_code == 201, created.text
    for answer in (allowed, created):
        path = f"standing-queries/{answer.json()['id']}"
        assert (await drafts.request("operator", "DELETE", path)).status_code == 204
