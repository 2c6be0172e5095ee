"""Upserts by values of a unique constraint, on each store and over two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from app.api.submission import submit
from mediator.model.operations import Create, Outcome, Update
from mediator.query.execution import QueryResult
from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.data.test_upserts import SYSTEMS, typed
from tests.process.service import Service, field_on

ADA: Final = "?email=ada@x&upsert=true"


def classes(first: str, second: str) -> dict[str, Any]:
    fields = {
        "email": field_on(first, unique=True, index=True),
        "tenant": field_on(first, index=True),
        "number": field_on(first, "decimal"),
        "name": field_on(first, required=True, default="?"),
        "nick": field_on(first, unique=True),
        "visits": field_on(second, "integer", default=5, group="visits"),
    }
    return {"people": {"fields": fields, "unique": [["tenant", "number"]]}}


@pytest.fixture(params=SYSTEMS, ids="-".join)
async def people(
    request: pytest.FixtureRequest, mediator: Service
) -> AsyncIterator[httpx.AsyncClient]:
    database = await mediator.put_schema(classes(*request.param))
    app = DataApi(mediator.mediator.data, DataOptions(cursor_key=b"key"), lambda _: None)
    base = f"http://localhost/v1/{database}/"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


async def upsert(
    people: httpx.AsyncClient, query: str, body: Any, type_: str = MERGE, **headers: str
) -> httpx.Response:
    return await people.patch(f"people{query}", json=body, headers=typed(type_, **headers))


async def list_people(people: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await people.get("people")).json()["items"])


@pytest.mark.parametrize(
    ("type_", "body", "visits"),
    [
        (MERGE, {"visits": 1}, (1, 1)),
        (UPDATE, {"visits": {"inc": 2}}, (7, 9)),
        (JSON_PATCH, [{"op": "replace", "path": "/visits", "value": 3}], (3, 3)),
    ],
    ids=[MERGE, UPDATE, JSON_PATCH],
)
async def test_the_object_that_has_the_values_is_created_and_then_patched(
    people: httpx.AsyncClient, type_: str, body: Any, visits: tuple[int, int]
) -> None:
    created = await upsert(people, ADA, body, type_)
    assert created.status_code == 201, created.text
    id_ = created.json()["id"]
    assert created.headers["location"].endswith(f"/people/{id_}")
    assert created.json()["email"] == "ada@x"
    assert (created.json()["visits"], created.json()["name"]) == (visits[0], "?")
    patched = await upsert(people, ADA, body, type_)
    assert (patched.status_code, patched.json()["id"]) == (200, id_), patched.text
    assert "location" not in patched.headers
    [stored] = await list_people(people)
    assert (stored["email"], stored["visits"]) == ("ada@x", visits[1])


async def test_values_of_several_fields_address_one_object(people: httpx.AsyncClient) -> None:
    for number in ("1.5", "1.50"):
        query = f"?tenant=t&number={number}&upsert=true"
        answer = await upsert(people, query, {"name": f"n{number}"})
        assert answer.status_code in {200, 201}, answer.text
    [stored] = await list_people(people)
    assert (stored["tenant"], stored["number"], stored["name"]) == ("t", "1.5", "n1.50")


@pytest.mark.usefixtures("patient")
async def test_concurrent_upserts_of_one_object_lose_no_patch(
    people: httpx.AsyncClient,
) -> None:
    body = {"visits": {"inc": 1}}
    answers = await asyncio.gather(*(upsert(people, ADA, body, UPDATE) for _ in range(12)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 11 + [201], [answer.text for answer in answers]
    [stored] = await list_people(people)
    assert stored["visits"] == 17


async def test_another_object_that_takes_the_values_meanwhile_is_patched(
    people: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_other_first(plane: Any, planned: Any) -> Outcome:
        if isinstance(planned.operation, Create):
            await people.put("people/other", json={"email": "ada@x", "visits": 50})
        return await submit(plane, planned)

    monkeypatch.setattr("app.api.keyed_upserts.submit", create_other_first)
    answer = await upsert(people, ADA, {"visits": {"inc": 1}}, UPDATE)
    assert (answer.status_code, answer.json()["id"]) == (200, "other")
    assert answer.json()["visits"] == 51


async def test_an_object_that_gives_the_values_away_meanwhile_is_left_alone(
    people: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people.put("people/first", json={"email": "ada@x", "visits": 1})
    changes = iter([{"email": "away@x"}])

    async def move_first(plane: Any, planned: Any) -> Outcome:
        for change in changes:
            await people.patch("people/first", json=change, headers=typed(MERGE))
        return await submit(plane, planned)

    monkeypatch.setattr("app.api.keyed_upserts.submit", move_first)
    answer = await upsert(people, ADA, {"visits": {"inc": 1}}, UPDATE)
    assert answer.status_code == 201, answer.text
    visits = {person["email"]: person["visits"] for person in await list_people(people)}
    assert visits == {"away@x": 1, "ada@x": 6}


async def test_a_retry_under_its_key_takes_effect_once(people: httpx.AsyncClient) -> None:
    body = {"visits": {"inc": 1}}
    headers = {"idempotency-key": "once"}
    first, repeated = [await upsert(people, ADA, body, UPDATE, **headers) for _ in range(2)]
    assert (first.status_code, repeated.status_code) == (201, 201)
    assert repeated.headers["idempotency-replayed"] == "true"
    assert repeated.json() == first.json()
    # Its id derives from the key, so it is found although it has other values now.
    id_ = first.json()["id"]
    await people.patch(f"people/{id_}", json={"email": "moved@x"}, headers=typed(MERGE))
    third = await upsert(people, ADA, body, UPDATE, **headers)
    assert (third.status_code, third.json()["id"]) == (201, id_)
    [stored] = await list_people(people)
    assert stored["visits"] == 6
    query, headers = "?email=moved@x&upsert=true", {"idempotency-key": "twice"}
    for _ in range(2):
        assert (await upsert(people, query, body, UPDATE, **headers)).status_code == 200
    assert [person["visits"] for person in await list_people(people)] == [7]
    other = await upsert(people, query, {"visits": {"inc": 2}}, UPDATE, **headers)
    assert_problem(other, 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (MERGE, {"visits": 1}),
        (UPDATE, {"visits": {"inc": 1}}),
        (JSON_PATCH, [{"op": "replace", "path": "/visits", "value": 9}]),
    ],
    ids=[MERGE, UPDATE, JSON_PATCH],
)
async def test_a_retry_patches_no_other_object_that_has_taken_the_values(
    people: httpx.AsyncClient, type_: str, body: Any
) -> None:
    headers = {"idempotency-key": "once"}
    first = await upsert(people, ADA, body, type_, **headers)
    assert first.status_code == 201, first.text
    id_ = first.json()["id"]
    await people.patch(f"people/{id_}", json={"email": "moved@x"}, headers=typed(MERGE))
    other = await people.put("people/other", json={"email": "ada@x", "visits": 50})
    assert other.status_code == 201, other.text
    repeated = await upsert(people, ADA, body, type_, **headers)
    assert (repeated.status_code, repeated.json()) == (201, first.json()), repeated.text
    assert repeated.headers["idempotency-replayed"] == "true"
    assert repeated.headers["location"] == first.headers["location"]
    await people.delete(f"people/{id_}")
    third = await upsert(people, ADA, body, type_, **headers)
    assert (third.status_code, third.json()) == (201, first.json()), third.text
    assert [(person["id"], person["visits"]) for person in await list_people(people)] == [
        ("other", 50)
    ]
    new = await upsert(people, ADA, body, type_, **{"idempotency-key": "another"})
    assert (new.status_code, new.json()["id"]) == (200, "other"), new.text


async def test_a_patch_keeps_the_values_that_address_the_object(people: httpx.AsyncClient) -> None:
    bodies: list[tuple[str, Any]] = [
        (MERGE, {"email": "other@x"}),
        (MERGE, {"email": None}),
        (UPDATE, {"email": {"set": "other@x"}}),
        (UPDATE, {"email": {"unset": True}}),
        (JSON_PATCH, [{"op": "remove", "path": "/email"}]),
        (JSON_PATCH, [{"op": "replace", "path": "/email", "value": "other@x"}]),
    ]
    for existing in (False, True):
        if existing:
            await people.put("people/ada", json={"email": "ada@x"})
        for type_, body in bodies:
            assert_problem(await upsert(people, ADA, body, type_), 400, "invalid", "/email")
        assert len(await list_people(people)) == existing
    assert (await upsert(people, ADA, {"email": "ada@x", "name": "Ada"})).status_code == 200


async def test_a_violation_of_another_constraint_is_not_retried(people: httpx.AsyncClient) -> None:
    await people.put("people/bob", json={"email": "bob@x", "nick": "b"})
    assert_problem(await upsert(people, ADA, {"nick": "b"}), 409, "not-unique", "/nick")
    assert len(await list_people(people)) == 1


async def test_an_object_that_is_hidden_is_reported_and_not_waited_for(
    people: httpx.AsyncClient, mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people.put("people/ada", json={"email": "ada@x"})

    query = mediator.mediator.data.query

    async def find_nothing(*arguments: Any) -> QueryResult:
        return replace(await query(*arguments), items=())

    monkeypatch.setattr(mediator.mediator.data, "query", find_nothing)
    assert_problem(await upsert(people, ADA, {"name": "Ada"}), 409, "not-unique", "/email")


async def test_conditions_that_address_no_single_object_are_refused(
    people: httpx.AsyncClient,
) -> None:
    for query, pointer in (
        ("upsert=true", "upsert"),
        ("upsert=true&name=Ada", "upsert"),
        ("upsert=true&tenant=t", "upsert"),
        ("upsert=true&email=a@x&tenant=t", "upsert"),
        ("upsert=true&email.gt=a", "upsert"),
        ("upsert=true&email=a&email=b", "upsert"),
        ("upsert=true&email.exists=true", "upsert"),
        ("upsert=true&id=x", "upsert"),
        ("upsert=true&email=a@x&limit=1", "upsert"),
        ("upsert=true&email=a@x&all=true", "all"),
        ("upsert=true&number=x&tenant=t", "number"),
        ("upsert=true&upsert=true&email=a@x", "upsert"),
        ("upsert=false&email=a@x", "upsert"),
        ("upsert=yes&email=a@x", "upsert"),
    ):
        answer = await upsert(people, f"?{query}", {"name": "Ada"})
        assert_problem(answer, 400, "invalid", pointer)
    for name in ("if-match", "if-none-match"):
        answer = await upsert(people, ADA, {"name": "Ada"}, **{name: '"x"'})
        assert_problem(answer, 400, "invalid", "upsert")
    assert await list_people(people) == []


async def test_objects_are_found_by_an_index(mediator: Service) -> None:
    """Without an index Redis would have to send all objects, as for any query."""
    fields = {"email": field_on("redis", unique=True)}
    database = await mediator.put_schema({"people": {"fields": fields}})
    app = DataApi(mediator.mediator.data, DataOptions(cursor_key=b"key"), lambda _: None)
    transport = httpx.ASGITransport(app=app)
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=transport, base_url=base) as people:
        assert_problem(await upsert(people, ADA, {}), 422, "needs-scan", "/filter")


async def test_the_class_of_updates_is_patched_by_id(people: httpx.AsyncClient) -> None:
    """The operation that is sent is bound to the versions by which the object was found."""
    await people.put("people/ada", json={"email": "ada@x"})
    updates: list[Update] = []

    async def record(plane: Any, planned: Any) -> Outcome:
        updates.append(planned.operation)
        return await submit(plane, planned)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.api.keyed_upserts.submit", record)
        await upsert(people, ADA, {"visits": {"inc": 1}}, UPDATE)
    [update] = updates
    assert (update.id, len(update.condition.versions)) == ("ada", 1)
