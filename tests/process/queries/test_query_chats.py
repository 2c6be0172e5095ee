"""Chats of profiles, many to many, and their messages: the oracle of docs/papers/nosql_mappers.md.

Each profile is a member of three chats, with five messages on average. A query's result must equal
that of a comprehension over the same data, on every placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from benchmarks.harness.profiles import placed
from tests.process.queries.querying import PLACEMENTS, QueryClient, query_client
from tests.process.service import Service, field_on

Json = dict[str, Any]

CLASSES: Mapping[str, Mapping[str, Json]] = {
    "profiles": {"name": {"type": "string"}, "country": {"type": "string"}},
    "chats": {"topic": {"type": "string"}, "members": {"type": "set", "items": "string"}},
    "messages": {
        "text": {"type": "string"},
        "chat": {"type": "reference", "to": "chats"},
        "author": {"type": "reference", "to": "profiles"},
    },
}
PROFILES, CHATS, MAX_MESSAGES = 40, 60, 10


@pytest.fixture(scope="module")
def data() -> dict[str, dict[str, Json]]:
    """Two members per chat: each profile is in three chats on average."""
    random = Random(11)
    profiles = {
        f"p{number}": {"name": f"Profile {number}", "country": random.choice(("DE", "AT", "FR"))}
        for number in range(PROFILES)
    }
    chats = {
        f"c{number}": {"topic": random.choice(("goal", "Tor")), "members": sorted(members)}
        for number in range(CHATS)
        if (members := random.sample(sorted(profiles), 2))
    }
    messages = {
        f"{chat}-{number}": {
            "text": f"message {number}",
            "chat": chat,
            "author": random.choice(chats[chat]["members"]),
        }
        for chat in chats
        for number in range(random.randrange(MAX_MESSAGES + 1))
    }
    return {"profiles": profiles, "chats": chats, "messages": messages}


@pytest.fixture(scope="module", params=PLACEMENTS, ids="+".join)
async def chats(mediator: Service, data: dict[str, dict[str, Json]], request: Any) -> Any:
    database = await mediator.put_schema(placed(CLASSES, request.param, field_on))
    async with query_client(mediator, database) as client:
        for name, objects in data.items():
            await client.load(name, objects)
        yield client


@pytest.mark.parametrize("profile", ["p0", "p7", "nobody"])
async def test_the_chats_of_a_profile(
    chats: QueryClient, data: dict[str, dict[str, Json]], profile: str
) -> None:
    query = {"filter": {"contains": ["members", profile]}, "limit": 100, "allow_scan": True}
    expected = [
        {"id": id_, **chat}
        for id_, chat in sorted(data["chats"].items())
        if profile in chat["members"]
    ]
    assert await chats.all("chats", query) == expected
    assert bool(expected) is (profile in data["profiles"])


async def test_messages_of_the_chats_of_a_profile_with_their_authors(
    chats: QueryClient, data: dict[str, dict[str, Json]]
) -> None:
    query: Json = {
        "filter": {"and": [{"contains": ["in.members", "p7"]}, {"eq": ["by.country", "DE"]}]},
        "join": [
            {"as": "in", "reference": "chat", "fields": ["topic"]},
            {"as": "by", "reference": "author", "fields": ["name"]},
        ],
        "fields": ["text"],
        "limit": 3,
        "allow_scan": True,
    }
    expected = [
        {
            "id": id_,
            "text": message["text"],
            "in": {"id": message["chat"], "topic": data["chats"][message["chat"]]["topic"]},
            "by": {"id": message["author"], "name": data["profiles"][message["author"]]["name"]},
        }
        for id_, message in sorted(data["messages"].items())
        if "p7" in data["chats"][message["chat"]]["members"]
        if data["profiles"][message["author"]]["country"] == "DE"
    ]
    assert len(expected) > query["limit"]
    assert await chats.all("messages", query) == expected


async def test_messages_are_counted_by_chat(
    chats: QueryClient, data: dict[str, dict[str, Json]]
) -> None:
    counts = Counter(message["chat"] for message in data["messages"].values())
    assert len(counts) < CHATS, "no chat is empty"
    compute = {"group": ["chat"], "compute": {"n": {"count": "*"}}}
    result = await chats.query("messages", {"aggregate": compute, "limit": 100, "allow_scan": True})
    assert result["items"] == [{"chat": chat, "n": counts[chat]} for chat in sorted(counts)]
