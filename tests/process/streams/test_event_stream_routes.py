"""Event streams over HTTP: refusals by location; pages, long polling, server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import orjson
import pytest

from mediator.event_streams.batch import MAX_BATCH_TUPLES, MAX_TUPLE_BYTES
from mediator.event_streams.service import EventStreamService
from tests.process.caching.guarded import Guarded, bearer
from tests.process.event_streams import read_events
from tests.process.service import unique
from tests.process.streams.market import ATTRIBUTES, Market, price

LINES = {"content-type": "application/x-ndjson"}


def pointers(answer: Any) -> list[str]:
    return [error["pointer"] for error in answer.json()["errors"]]


async def test_a_stream_is_declared_listed_shown_and_dropped(market: Market) -> None:
    name = unique("prices")
    creation = await market.client.post("event-streams", json={"name": name, "attributes": ["x"]})
    document = {
        "name": name,
        "attributes": {"x": None},
        "retention_s": 3600.0,
        "most_tuples": 1_000_000,
    }
    assert (creation.status_code, creation.json()) == (201, document)
    assert creation.headers["location"] == f"/v1/{market.database}/event-streams/{name}"
    assert document in (await market.client.get("event-streams")).json()["items"]
    await market.client.post(
        f"event-streams/{name}/tuples", json={"tuples": [{"time_s": 1, "values": {"x": "é"}}]}
    )
    report = (await market.client.get(f"event-streams/{name}")).json()
    assert report.pop("rate") > 0
    counts = {"first": 1, "last": 1, "tuples": 1, "bytes": len(b'1.0 {"x":"  "}')}
    assert report == {**document, **counts, "consumers": []}
    duplicate = await market.client.post("event-streams", json=document)
    assert (duplicate.status_code, duplicate.json()["type"]) == (409, "/problems/already-exists")
    assert (await market.client.delete(f"event-streams/{name}")).status_code == 204
    for path in ("", "/tuples"):
        answer = await market.client.get(f"event-streams/{name}{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert (await market.client.delete(f"event-streams/{name}")).status_code == 404


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"name": "Prices"}, "/name"),
        ({"attributes": []}, "/attributes"),
        ({"attributes": {}}, "/attributes"),
        ({"attributes": ["a", "a"]}, "/attributes"),
        ({"attributes": ["a", "1"]}, "/attributes/1"),
        ({"attributes": {"a": "decimal"}}, "/attributes/a"),
        ({"attributes": {"a": ["string"]}}, "/attributes/a"),
        ({"attributes": "a"}, "/attributes"),
        ({"retention_s": 0.5}, "/retention_s"),
        ({"retention_s": True}, "/retention_s"),
        ({"most_tuples": 0}, "/most_tuples"),
        ({"most_tuples": 10**8}, "/most_tuples"),
        ({"max_tuples": 5}, "/max_tuples"),
    ],
)
async def test_an_invalid_declaration_is_refused_with_its_location(
    market: Market, members: dict[str, Any], pointer: str
) -> None:
    document = {"name": unique("prices"), "attributes": ["x"], **members}
    answer = await market.client.post("event-streams", json=document)
    assert answer.status_code == 400
    assert pointers(answer) == [pointer]


async def test_no_stream_has_the_name_of_a_class(market: Market) -> None:
    document = {"name": "shares", "attributes": ["x"]}
    answer = await market.client.post("event-streams", json=document)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/already-exists")


async def test_tuples_are_appended_as_json_and_as_lines(market: Market) -> None:
    stream = await market.declare()
    assert await market.append_prices(stream, 1.5, 2.5) == {"first": 1, "last": 2}
    lines = b"\n".join(map(orjson.dumps, [price(3.5), price(4.5, note=None)])) + b"\n\n"
    path = f"event-streams/{stream}/tuples"
    answer = await market.client.post(path, content=lines, headers=LINES)
    assert (answer.status_code, answer.json()) == (200, {"first": 3, "last": 4})
    page = await market.page(stream, after=2)
    assert [tuple_["number"] for tuple_ in page["tuples"]] == [3, 4]
    assert page["tuples"][1]["values"] == {"price": 4.5, "note": None}
    assert page["position"] == 4
    assert await market.prices(stream) == [1.5, 2.5, 3.5, 4.5]
    assert await market.prices(stream, after=1, limit=2) == [2.5, 3.5]
    assert await market.page(stream, after=4) == {"tuples": [], "position": 4}


NOW = {"time_s": 1e9}


@pytest.mark.parametrize(
    ("tuple_", "pointer"),
    [
        (7, ""),
        ({"values": {}}, ""),
        ({**NOW, "values": {}, "more": 1}, ""),
        ({**NOW, "values": [1]}, "/values"),
        ({"time_s": "now", "values": {}}, "/time_s"),
        ({"time_s": True, "values": {}}, "/time_s"),
        ({"time_s": -1, "values": {}}, "/time_s"),
        ({"time_s": 1e300, "values": {}}, "/time_s"),
        ({"time_s": 10**40, "values": {}}, "/time_s"),
        ({**NOW, "values": {"pryce": 1.0}}, "/values/pryce"),
        ({**NOW, "values": {"a/b": 1.0}}, "/values/a~1b"),
        ({**NOW, "values": {"price": "1"}}, "/values/price"),
        ({**NOW, "values": {"price": True}}, "/values/price"),
        ({**NOW, "values": {"volume": 1.5}}, "/values/volume"),
        ({**NOW, "values": {"volume": 2**63}}, "/values/volume"),
        ({**NOW, "values": {"share": 1}}, "/values/share"),
        ({**NOW, "values": {"note": {"nested": 1}}}, "/values/note"),
        ({**NOW, "values": {"note": [1]}}, "/values/note"),
        ({**NOW, "values": {"note": "x" * MAX_TUPLE_BYTES}}, "/values"),
    ],
)
async def test_a_batch_with_an_invalid_tuple_is_refused_as_a_whole(
    market: Market, tuple_: Any, pointer: str
) -> None:
    stream = await market.declare()
    tuples = [*(price(n) for n in range(17)), tuple_]
    path, lines = f"event-streams/{stream}/tuples", "\n".join(map(json.dumps, tuples))
    for answer in (
        await market.send(stream, tuples),
        await market.client.post(path, content=lines, headers=LINES),
    ):
        assert answer.status_code == 400, answer.text
        assert pointers(answer) == [f"/tuples/17{pointer}"]
    assert (await market.page(stream))["tuples"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"[]", ""),
        (b"{}", "/tuples"),
        (b'{"tuples": []}', "/tuples"),
        (b'{"tuples": {}}', "/tuples"),
        (b'{"tuples": [{}], "after": 1}', "/after"),
        (b'{"tuples": [{"time_s": 1e999, "values": {}}]}', ""),
        (b'{"tuples": [{"time_s": NaN, "values": {}}]}', ""),
        (b'{"tuples": [' + b"1," * MAX_BATCH_TUPLES + b"1]}", "/tuples"),
        (b'{"tuples": [{"time_s": 1, "values": ' + b'{"note":' * 500 + b"1" + b"}" * 502, ""),
    ],
)
async def test_a_body_that_is_no_batch_is_refused(
    market: Market, body: bytes, pointer: str
) -> None:
    stream = await market.declare()
    path = f"event-streams/{stream}/tuples"
    type_ = {"content-type": "application/json"}
    answer = await market.client.post(path, content=body, headers=type_)
    assert answer.status_code == 400, answer.text
    assert pointers(answer) == [pointer]


async def test_a_line_that_is_no_json_is_refused_with_its_location(market: Market) -> None:
    stream = await market.declare()
    path = f"event-streams/{stream}/tuples"
    content = orjson.dumps(price(1.0)) + b"\n\n{\n"
    answer = await market.client.post(path, content=content, headers=LINES)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-json")
    assert pointers(answer) == ["/tuples/1"]
    for content in (b"", b"\n", b"1\n" * (MAX_BATCH_TUPLES + 1)):
        answer = await market.client.post(path, content=content, headers=LINES)
        assert pointers(answer) == ["/tuples"]


async def test_a_body_of_another_type_or_size_is_refused(market: Market) -> None:
    stream = await market.declare()
    path = f"event-streams/{stream}/tuples"
    answer = await market.client.post(path, content=b"", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    large = b" " * (8 * 2**20 + 1)
    for type_ in ("application/json", "application/x-ndjson"):
        answer = await market.client.post(path, content=large, headers={"content-type": type_})
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/body-too-large")


async def test_a_full_stream_says_when_there_is_room(market: Market) -> None:
    stream = await market.declare(most_tuples=3, retention_s=600)
    await market.append_prices(stream, 1, 2)
    answer = await market.send(stream, [price(3), price(4)])
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (429, "/problems/too-many-requests")
    assert problem["limit"] == "tuples"
    assert 1 <= int(answer.headers["retry-after"]) <= 600
    assert await market.prices(stream) == [1, 2]
    answer = await market.send(stream, [price(n) for n in range(4)])
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")


async def test_a_batch_under_an_idempotency_key_is_appended_once(market: Market) -> None:
    stream, other = await market.declare(), await market.declare()
    tuples, key = [price(1.0), price(2.0)], {"idempotency-key": unique()}
    first = await market.send(stream, tuples, **key)
    retry = await market.send(stream, tuples, **key)
    assert first.json() == retry.json() == {"first": 1, "last": 2}
    assert "idempotency-replayed" not in first.headers
    assert retry.headers["idempotency-replayed"] == "true"
    conflict = await market.send(stream, tuples[:1], **key)
    assert (conflict.status_code, conflict.json()["type"]) == (
        422,
        "/problems/idempotency-key-reused",
    )
    assert (await market.send(other, tuples, **key)).json() == {"first": 1, "last": 2}
    await market.append_prices(stream, 3.0)
    assert await market.prices(stream) == [1.0, 2.0, 3.0]


async def test_the_cached_stream_ends_with_it(market: Market) -> None:
    """Another replica drops the stream, and declares it with another attribute."""
    stream = await market.declare()
    await market.append_prices(stream, 1.0)
    shared = market.service.mediator.event_streams
    assert shared is not None
    other = EventStreamService(shared, market.service.mediator.data._clock)  # noqa: SLF001
    await other.drop(market.key(stream))
    await market.declare(name=stream, attributes={"other": "string"})
    answer = await market.send(stream, [price(2.0)])
    assert (answer.status_code, pointers(answer)) == (400, ["/tuples/0/values/price"])
    right = {"time_s": 1, "values": {"other": "x"}}
    assert (await market.send(stream, [right])).json() == {"first": 2, "last": 2}


async def test_a_reader_waits_for_the_next_tuple(market: Market) -> None:
    stream = await market.declare()
    await market.append_prices(stream, 1.0)
    waiting = asyncio.create_task(market.prices(stream, after=1, wait=30))
    await asyncio.sleep(0)
    await market.append_prices(stream, 2.0)
    assert await waiting == [2.0]


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [({"after": "-1"}, "after"), ({"limit": 1001}, "limit"), ({"wait": 31}, "wait")],
)
async def test_parameters_out_of_bounds_are_refused(
    market: Market, parameters: dict[str, Any], pointer: str
) -> None:
    stream = await market.declare()
    answer = await market.client.get(f"event-streams/{stream}/tuples", params=parameters)
    assert (answer.status_code, pointers(answer)) == (400, [pointer])


async def test_numbers_that_are_not_kept_are_gone(market: Market) -> None:
    stream = await market.declare()
    await market.append_prices(stream, 1.0)
    answer = await market.client.get(f"event-streams/{stream}/tuples", params={"after": 2})
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")


async def test_events_resume_at_the_position_of_the_client_and_follow_new_tuples(
    market: Market,
) -> None:
    stream = await market.declare()
    await market.append_prices(stream, 1.0, 2.0)
    path = f"/v1/{market.database}/event-streams/{stream}/tuples"
    started = asyncio.Event()
    following = asyncio.create_task(
        read_events(market.api, path, '"price":4.0', (b"last-event-id", b"1"), started=started)
    )
    await started.wait()
    await market.append_prices(stream, 3.0)
    await market.append_prices(stream, 4.0)
    events = await following
    assert [(event["number"], event["values"]["price"]) for event in events] == [
        (2, 2.0),
        (3, 3.0),
        (4, 4.0),
    ]


async def test_events_end_when_the_stream_is_dropped(market: Market) -> None:
    stream = await market.declare()
    path, started = f"/v1/{market.database}/event-streams/{stream}/tuples", asyncio.Event()
    following = asyncio.create_task(read_events(market.api, path, "never", started=started))
    await started.wait()
    await market.client.delete(f"event-streams/{stream}")
    assert await following == []


async def test_a_grant_names_a_stream_as_it_names_a_class(running: Guarded) -> None:
    prices, other = unique("prices"), unique("other")
    operator = await running.headers("operator", "write")
    base = f"/v1/{running.database}/event-streams"
    for name in (prices, other):
        document = {"name": name, "attributes": ATTRIBUTES}
        answer = await running.data.post(base, json=document, headers=operator)
        assert answer.status_code == 201
    body = {"tuples": [{"time_s": time.time(), "values": {"price": 1.0}}]}
    writer = bearer(await running.key(f"write:{running.database}/{prices}"))
    reader = bearer(await running.key(f"read:{running.database}/{prices}"))
    statuses = {}
    for caller, headers in (("writer", writer), ("reader", reader)):
        for name in (prices, other):
            path = f"{base}/{name}"
            append = await running.data.post(f"{path}/tuples", json=body, headers=headers)
            page = await running.data.get(f"{path}/tuples", headers=headers)
            report = await running.data.get(path, headers=headers)
            deletion = await running.data.delete(path, headers=headers)
            key = caller, "own" if name == prices else "other"
            statuses[key] = [answer.status_code for answer in (append, page, report, deletion)]
    assert statuses == {
        ("writer", "own"): [200, 200, 200, 403],
        ("writer", "other"): [403] * 4,
        ("reader", "own"): [403, 200, 200, 403],
        ("reader", "other"): [403] * 4,
    }
    answer = await running.data.post(base, json={}, headers=writer)
    assert answer.status_code in (400, 403)


async def test_a_class_that_takes_the_name_of_a_stream_opens_it_to_nobody(
    running: Guarded,
) -> None:
    """A grant of the class does not cover the stream that had its name before."""
    name = unique("prices")
    operator = await running.headers("operator", "write")
    base = f"/v1/{running.database}/event-streams"
    document = {"name": name, "attributes": ATTRIBUTES}
    await running.data.post(base, json=document, headers=operator)
    path = f"/admin/v1/schemas/{running.database}"
    schema = {"classes": {name: {"fields": {"title": {"type": "string"}}}}}
    answer = await running.admin.patch(path, json=schema, headers=operator)
    assert answer.status_code == 200, answer.text
    reader = bearer(await running.key(f"read:{running.database}/{name}"))
    url = f"/v1/{running.database}/{name}"
    assert (await running.data.get(url, headers=reader)).status_code == 200
    answer = await running.data.get(f"{base}/{name}/tuples", headers=reader)
    assert answer.status_code == 403
    database_reader = bearer(await running.key(f"read:{running.database}"))
    answer = await running.data.get(f"{base}/{name}/tuples", headers=database_reader)
    assert answer.status_code == 200
