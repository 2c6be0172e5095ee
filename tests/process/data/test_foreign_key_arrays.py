"""Foreign keys of lists and sets over the data API, on every store: each element is one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

from tests.process.caching.newspaper import JSON_PATCH, MERGE, UPDATE, assert_problem
from tests.process.data.test_foreign_keys import OTHER, SYSTEMS, get_object, patch, put
from tests.process.data.test_unique import client_of
from tests.process.service import Service, field_on
from tests.process.transactions.open_writes import all_over

MAX_MEMBERS: Final = 100


def refer(system: str, type_: str, on_delete: str, **members: Any) -> dict[str, Any]:
    reference = {"items": "reference", "to": "authors", "index": True, "max_length": MAX_MEMBERS}
    return field_on(system, type_, on_delete=on_delete, **reference, **members)


def classes(system: str) -> dict[str, Any]:
    """Return authors, with books that have several of them."""
    other = OTHER[system]
    split = {"by": refer(system, "list", "nullify", group="a"), "n": field_on(other)}
    both = {
        "by": refer(system, "list", "nullify"),
        "editor": field_on(
            system, "reference", to="authors", index=True, on_delete="nullify", group="e"
        ),
        "time": field_on(system, "timestamp", updated=True),
    }
    return {
        "authors": {"fields": {"name": field_on(other)}},
        "refuse": {"fields": {"by": refer(system, "list", "refuse"), "n": field_on(system)}},
        "cascade": {"fields": {"by": refer(system, "set", "cascade")}},
        "nullify": {"fields": {"by": refer(system, "set", "nullify", required=True)}},
        "split": {"fields": split},
        "both": {"fields": both},
    }


@pytest.fixture(scope="module", params=SYSTEMS)
async def http(mediator: Service, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with client_of(mediator, classes(request.param)) as client:
        yield client


async def authors(http: httpx.AsyncClient, *ids: str) -> None:
    for id_ in ids:
        await put(http, f"authors/{id_}", name="n")


async def remove(http: httpx.AsyncClient, id_: str) -> None:
    answer = await http.delete(f"authors/{id_}")
    assert answer.status_code == 204, answer.text


async def test_every_element_has_to_exist_whichever_way_it_is_written(
    http: httpx.AsyncClient,
) -> None:
    await authors(http, "one", "two")
    for name in ("refuse", "cascade", "split"):
        await put(http, f"{name}/w", by=["one"])
        before = await get_object(http, f"{name}/w")
        adding = ("add_to_set",) if name == "cascade" else ("push", "push_front")
        step = {"op": "add", "path": "/by", "value": ["one", "none"]}
        for answer in (
            await http.put(f"{name}/w", json={"by": ["one", "none"]}),
            await http.put(f"{name}/new", json={"by": ["none", "one"]}),
            await http.post(name, json={"id": "new", "by": ["one", "none"]}),
            await patch(http, f"{name}/w", MERGE, {"by": ["two", "none"]}),
            await patch(http, f"{name}/w", UPDATE, {"by": {"set": ["none"]}}),
            await patch(http, f"{name}/w", JSON_PATCH, [step]),
            *[await patch(http, f"{name}/w", UPDATE, {"by": {op: "none"}}) for op in adding],
        ):
            assert_problem(answer, 409, "dangling-reference", "/by")
        assert await get_object(http, f"{name}/w") == before
        assert await get_object(http, f"{name}/new") is None
        for op in adding:
            assert (await patch(http, f"{name}/w", UPDATE, {"by": {op: "two"}})).is_success
        assert {*(await get_object(http, f"{name}/w"))["by"]} == {"one", "two"}
        assert (await http.delete(f"{name}/w")).status_code == 204


async def test_an_element_refuses_the_deletion_until_it_is_gone(http: httpx.AsyncClient) -> None:
    await authors(http, "ada", "bob")
    await put(http, "refuse/r", by=["bob", "ada", "bob"])
    document = assert_problem(await http.delete("authors/ada"), 409, "still-referenced")
    [reference] = document["references"]
    assert reference == {
        "class": "refuse",
        "field": "by",
        "count": 1,
        "more": False,
        "sample": ["r"],
    }
    assert (await patch(http, "refuse/r", UPDATE, {"by": {"remove": "ada"}})).is_success
    await remove(http, "ada")
    assert_problem(await http.delete("authors/bob"), 409, "still-referenced")
    assert (await http.put("refuse/r", json={"by": []})).is_success
    await remove(http, "bob")


async def test_elements_are_removed(http: httpx.AsyncClient) -> None:
    await authors(http, "eve", "fay")
    await put(http, "nullify/n", by=["eve"])
    await put(http, "split/n", by=["eve", "fay", "eve"], n="m")
    await put(http, "both/n", by=["fay", "eve"], editor="eve")
    before = (await get_object(http, "both/n"))["time"]
    await remove(http, "eve")
    assert await get_object(http, "nullify/n") == {"id": "n", "by": []}
    assert await get_object(http, "split/n") == {"id": "n", "by": ["fay"], "n": "m"}
    both = await get_object(http, "both/n")
    assert (both["by"], both["editor"]) == (["fay"], None)
    assert both["time"] > before
    await remove(http, "fay")
    assert (await get_object(http, "split/n"))["by"] == []


async def test_objects_with_the_element_are_deleted(http: httpx.AsyncClient) -> None:
    await authors(http, "gus", "hal")
    await put(http, "cascade/c1", by=["gus", "hal"])
    await put(http, "cascade/c2", by=["hal"])
    await remove(http, "gus")
    assert await get_object(http, "cascade/c1") is None
    assert await get_object(http, "cascade/c2")


async def test_several_deletions_remove_their_elements_at_once(http: httpx.AsyncClient) -> None:
    await authors(http, "ida", "joe", "kim")
    await put(http, "split/several", by=["joe", "kim", "ida"])
    deletions = [{"op": "delete", "class": "authors", "id": id_} for id_ in ("ida", "joe")]
    answer = await http.post("transactions", json={"operations": deletions})
    assert answer.is_success, answer.text
    assert (await get_object(http, "split/several"))["by"] == ["kim"]


async def test_batches_and_transactions(mediator: Service, http: httpx.AsyncClient) -> None:
    author = {"op": "create", "class": "authors", "id": "tx", "body": {"name": "n"}}
    creation = {"op": "create", "class": "refuse", "id": "tx", "body": {"by": ["tx"]}}
    deletion = {"op": "delete", "class": "authors", "id": "tx"}

    def update(**operator: Any) -> dict[str, Any]:
        return {"op": "update", "class": "refuse", "id": "tx", "body": {"by": operator}}

    [refused] = (await http.post("batch", json={"operations": [creation]})).json()
    assert refused["problem"]["type"] == "/problems/dangling-reference"
    assert (await http.post("transactions", json={"operations": [creation, author]})).is_success
    [refused] = (await http.post("batch", json={"operations": [deletion]})).json()
    assert refused["problem"]["type"] == "/problems/still-referenced"
    await authors(http, "other")
    for change in (update(push="other"), update(set=["other", "tx"]), update(remove="other")):
        answer = await http.post("transactions", json={"operations": [deletion, change]})
        assert_problem(answer, 409, "still-referenced")
    addition = update(push="tx")
    answer = await http.post("transactions", json={"operations": [deletion, addition]})
    assert answer.status_code == 409
    release = update(remove="tx")
    assert (await http.post("transactions", json={"operations": [deletion, release]})).is_success
    assert await get_object(http, "refuse/tx") == {"id": "tx", "by": []}
    await all_over(mediator)


async def test_too_many_are_refused_with_the_request_that_writes_them(
    http: httpx.AsyncClient,
) -> None:
    await authors(http, "many")
    lines = "".join(f'{{"id": "m{n:03}", "by": ["many"]}}\n' for n in range(MAX_MEMBERS))
    ndjson = {"content-type": "application/x-ndjson"}
    answer = await http.post("nullify/import", content=lines, headers=ndjson)
    assert answer.json()["imported"] == MAX_MEMBERS, answer.text
    document = assert_problem(await http.delete("authors/many"), 409, "still-referenced")
    [(address, body)] = re.findall(r"PATCH (/v1/\S+) with (\{.*\})\.", document["detail"])
    response = await http.patch(
        f"http://test{address}", content=body, headers={"content-type": UPDATE}
    )
    assert response.json()["written"] == MAX_MEMBERS, response.text
    await remove(http, "many")
