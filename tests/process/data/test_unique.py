"""Unique values on every store, by the data API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.base.errors import Conflict, MediatorError, NotUnique
from mediator.model.operations import Create, Delete, Update
from mediator.stores.port import SystemConfig
from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.service import Service, field_on, service, unique

OPTIONS: Final = DataOptions(cursor_key=b"k" * 32)
SYSTEMS: Final = ("redis", "postgres", "mongo")
WRITERS: Final = 16


def users(system: str, **members: Any) -> dict[str, Any]:
    """Return a class with unique e-mail addresses, and with names that are unique per tenant."""
    fields = {
        "email": field_on(system, unique=True),
        "tenant": field_on(system),
        "name": field_on(system),
        "visits": field_on(system, "integer"),
    }
    return {"users": {"fields": fields, "unique": [["tenant", "name"]], **members}}


@asynccontextmanager
async def client_of(on: Service, classes: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    database = await on.put_schema(classes)
    api = DataApi(
        on.mediator.data,
        OPTIONS,
        on.observed.append,
        DataServices(transact=on.mediator.transactions.run),
    )
    base = f"http://test/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=base) as http:
        yield http


@pytest.fixture(params=SYSTEMS)
async def http(mediator: Service, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with client_of(mediator, users(request.param)) as client:
        yield client


async def put(http: httpx.AsyncClient, id_: str, **members: Any) -> None:
    answer = await http.put(f"users/{id_}", json=members)
    assert answer.is_success, answer.text


async def patch(http: httpx.AsyncClient, id_: str, type_: str, body: Any) -> httpx.Response:
    return await http.patch(f"users/{id_}", json=body, headers={"content-type": type_})


def assert_taken(answer: httpx.Response, *pointers: str) -> None:
    """Check the problem of a value that another object has."""
    document = assert_problem(answer, 409, "not-unique", *pointers)
    assert len(document["errors"]) == len(pointers)


async def test_every_way_to_write_a_taken_value_is_refused(http: httpx.AsyncClient) -> None:
    await put(http, "a", email="a@x", tenant="t", name="n")
    await put(http, "b", email="b@x", tenant="t", name="m", visits=1)
    before = (await http.get("users/b")).json()
    for answer in (
        await http.put("users/c", json={"email": "a@x"}),
        await http.put("users/b", json={"email": "a@x"}),
        await http.post("users", json={"email": "a@x"}),
        await patch(http, "b", MERGE, {"email": "a@x"}),
        await patch(http, "b", UPDATE, {"email": {"set": "a@x"}, "visits": {"inc": 1}}),
        await patch(http, "b", JSON_PATCH, [{"op": "replace", "path": "/email", "value": "a@x"}]),
    ):
        assert_taken(answer, "/email")
    for answer in (
        await http.put("users/c", json={"tenant": "t", "name": "n"}),
        await patch(http, "b", MERGE, {"name": "n"}),
        await patch(http, "b", UPDATE, {"name": {"set": "n"}, "visits": {"inc": 1}}),
        await patch(http, "b", JSON_PATCH, [{"op": "replace", "path": "/name", "value": "n"}]),
    ):
        assert_taken(answer, "/tenant", "/name")
    assert (await http.get("users/b")).json() == before
    assert (await http.get("users/c")).status_code == 404
    await put(http, "a", email="a@x", tenant="u", name="n")
    answer = await patch(http, "b", UPDATE, {"name": {"set": "n"}, "visits": {"inc": 1}})
    assert (answer.status_code, answer.json()["visits"]) == (200, 2), "the value is free now"


async def test_one_field_of_a_constraint_is_changed_with_the_others_unchanged(
    http: httpx.AsyncClient,
) -> None:
    await put(http, "a", tenant="t", name="n")
    await put(http, "b", tenant="u", name="n")
    await put(http, "c", name="n")
    tag = (await http.get("users/b")).headers["etag"]
    stale = await http.patch("users/b", json={"name": "m"}, headers={"if-match": '"0"'})
    assert stale.status_code == 412
    headers = {"content-type": MERGE, "if-match": tag}
    answer = await http.patch("users/b", json={"tenant": "t"}, headers=headers)
    assert_taken(answer, "/tenant", "/name")
    for body in ({"tenant": None}, {"tenant": "t", "name": None}, {"tenant": "u", "name": "n"}):
        assert (await patch(http, "b", MERGE, body)).status_code == 200, body
    assert_taken(await patch(http, "c", MERGE, {"tenant": "u"}), "/tenant", "/name")
    assert (await patch(http, "c", MERGE, {"tenant": "v"})).status_code == 200
    assert (await patch(http, "gone", MERGE, {"tenant": "v"})).status_code == 404


async def test_operators_do_not_apply_to_unique_fields(mediator: Service) -> None:
    fields = {"n": field_on("redis", "integer", unique=True)}
    async with client_of(mediator, {"users": {"fields": fields}}) as http:
        await put(http, "a", n=1)
        answer = await patch(http, "a", UPDATE, {"n": {"inc": 1}})
        document = assert_problem(answer, 400, "invalid", "/n/inc")
        assert "unique" in document["errors"][0]["detail"]
        assert (await patch(http, "a", UPDATE, {"n": {"set": 2}})).status_code == 200


@pytest.mark.usefixtures("patient")
async def test_writers_race_for_a_value(http: httpx.AsyncClient) -> None:
    await asyncio.gather(*(put(http, f"old{i}", email=f"{i}") for i in range(WRITERS)))
    writes = [http.put(f"users/new{i}", json={"email": "a@x"}) for i in range(WRITERS)]
    writes += [patch(http, f"old{i}", MERGE, {"email": "a@x"}) for i in range(WRITERS)]
    writes += [http.put(f"users/old{i}", json={"email": "a@x"}) for i in range(WRITERS)]
    answers = await asyncio.gather(*writes)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 201, 409}
    ids = ",".join(f"{kind}{i}" for kind in ("old", "new") for i in range(WRITERS))
    items = (await http.get(f"users?ids={ids}")).json()["items"]
    assert [item.get("email") for item in items].count("a@x") == 1


async def test_each_operation_of_a_batch_is_refused_individually(http: httpx.AsyncClient) -> None:
    await put(http, "a", email="3")
    operations = [
        {"op": "put", "class": "users", "id": f"u{i}", "body": {"email": f"{i}"}} for i in range(8)
    ]
    answer = await http.post("batch", json={"operations": operations})
    statuses = [item["status"] for item in answer.json()]
    assert statuses == [409 if i == 3 else 201 for i in range(8)], answer.text


async def test_a_deleted_object_frees_its_value(http: httpx.AsyncClient) -> None:
    await put(http, "a", email="a@x")
    assert_taken(await http.put("users/b", json={"email": "a@x"}), "/email")
    assert (await http.delete("users/a")).is_success
    await put(http, "b", email="a@x")
    assert_taken(await http.put("users/a", json={"email": "a@x"}), "/email")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("system", SYSTEMS)
async def test_replicas_agree(
    mediator: Service, system_configs: Sequence[SystemConfig], catalogue_url: str, system: str
) -> None:
    database = await mediator.put_schema(users(system))
    async with service(system_configs, catalogue_url) as other:

        async def create(on: Service, id_: str) -> MediatorError | None:
            try:
                await on.mediator.data.write(
                    Create(database, "users", id_, unique("op"), values={"email": "a@x"})
                )
            except MediatorError as error:
                return error
            return None

        writes = [create(on, unique()) for on in (mediator, other) for _ in range(WRITERS)]
        errors = [error for error in await asyncio.gather(*writes) if error is not None]
        assert len(errors) == 2 * WRITERS - 1
        assert all(isinstance(error, NotUnique) for error in errors)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_constraints_are_added_if_there_are_no_duplicates(
    mediator: Service, system: str
) -> None:
    plain: dict[str, Any] = {"users": {"fields": {"email": field_on(system)}}}
    control, database = mediator.mediator.control, await mediator.put_schema(plain)
    constrained = {"users": {"fields": {"email": field_on(system, unique=True)}}}
    await mediator.create(database, "users", "a", email="a@x")
    await mediator.create(database, "users", "b", email="a@x")
    with pytest.raises(Conflict) as refused:
        await control.set_schema(database, {"classes": constrained})
    assert refused.value.locations[0].pointer == "/classes/users/fields/email/unique"
    for id_ in ("a", "b"):
        await mediator.mediator.data.write(Delete(database, "users", id_, unique("op")))
    await control.set_schema(database, {"classes": constrained})
    await mediator.create(database, "users", "b", email="a@x")
    with pytest.raises(NotUnique):
        await mediator.create(database, "users", "a", email="a@x")
    await control.set_schema(database, {"classes": plain})
    await mediator.create(database, "users", "a", email="a@x")
    with pytest.raises(Conflict):
        await control.set_schema(database, {"classes": constrained})
    plain["users"]["fields"]["login"] = field_on(system, unique=True)
    await control.set_schema(database, {"classes": plain})
    await mediator.create(database, "users", "c", login="ada")
    update = Update(database, "users", "a", unique("op"), values={"login": "ada"})
    with pytest.raises(NotUnique):
        await mediator.mediator.data.write(update)
