"""Problems of both ports name the request that they answer, as `X-Request-Id` and the log do."""

from __future__ import annotations

import httpx
import pytest

from tests.process.caching.guarded import Guarded

DATA = {
    "no route": ("GET", "/nowhere"),
    "no route of the data": ("GET", "/v1/"),
    "no key": ("GET", "/openapi.json"),
    "no such object": ("GET", "/v1/{database}/articles/nobody"),
    "no such method": ("TRACE", "/v1/{database}/articles/there"),
}
ADMIN = {
    "no route": ("GET", "/admin/v1/nowhere"),
    "no such method": ("PATCH", "/live"),
    "no such system": ("GET", "/admin/v1/systems/nowhere"),
    "no parameter": ("GET", "/admin/v1/schemas/{database}?nope=1"),
    "no body": ("PUT", "/admin/v1/schemas/{database}"),
    "not as the route wants it": ("PUT", "/admin/v1/tenants/UPPER"),
}


def assert_names_its_request(answer: httpx.Response, id_: str | None = None) -> None:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    instance = answer.json()["instance"]
    assert answer.headers.get_list("x-request-id") == [instance]
    assert id_ is None or instance == id_
    assert "/" not in instance


@pytest.mark.parametrize("port", ["data", "admin"])
@pytest.mark.parametrize("caller", ["operator", "anonymous"])
async def test_problems_of_both_ports_name_the_request(
    running: Guarded, port: str, caller: str
) -> None:
    client = running.data if port == "data" else running.admin
    headers = await running.headers(caller, "admin")
    problems = 0
    for method, path in (DATA if port == "data" else ADMIN).values():
        target = path.format(database=running.database)
        for id_ in (None, "mine-1"):
            id_headers = {} if id_ is None else {"x-request-id": id_}
            answer = await client.request(method, target, headers={**headers, **id_headers})
            if answer.status_code >= 400:
                assert_names_its_request(answer, id_)
                problems += 1
    assert problems >= 8


async def test_a_request_of_another_site_is_named(running: Guarded) -> None:
    headers = {"origin": "https://elsewhere.example", "host": "x"}
    answer = await running.admin.post("/admin/v1/systems", headers=headers)
    assert answer.status_code == 403
    assert_names_its_request(answer)


@pytest.mark.parametrize("hostile", ["a b", "x" * 129, "é".encode().decode("latin-1")])
async def test_invalid_request_ids_are_replaced(running: Guarded, hostile: str) -> None:
    headers = {b"x-request-id": hostile.encode("latin-1")}
    answer = await running.admin.get("/admin/v1/nowhere", headers=headers)
    assert_names_its_request(answer)
    assert answer.json()["instance"] != hostile
