"""Combinations that tests of single features miss: odd conditions and orders, on every system."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from tests.process.service import Service, field_on, service, unique


def fields_on(system: str) -> dict[str, Any]:
    return {"n": field_on(system, "integer", default=0), "d": field_on(system, "document")}


CLASSES: dict[str, Any] = {
    "rows": {"fields": fields_on("postgres")},
    "cells": {"fields": fields_on("redis")},
    "notes": {"fields": fields_on("mongo")},
}
MERGE = {"content-type": "application/merge-patch+json"}


@asynccontextmanager
async def client_of(running: Service, database: str) -> AsyncIterator[httpx.AsyncClient]:
    api = DataApi(running.mediator.data, DataOptions(cursor_key=b"key"), lambda _: None)
    transport = httpx.ASGITransport(app=api)
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


@pytest.fixture(scope="module")
async def client(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(mediator, await mediator.put_schema(CLASSES)) as opened:
        yield opened


@pytest.mark.parametrize("class_name", CLASSES)
@pytest.mark.parametrize("version", [2**63 - 1, 2**63, 10**19 - 1])
async def test_if_match_with_a_future_version_fails(
    client: httpx.AsyncClient, class_name: str, version: int
) -> None:
    path = f"{class_name}/{unique()}"
    written = await client.put(path, json={"n": 1})
    tag = re.sub(r":\d+", f":{version}", written.headers["etag"])
    answers = [
        await client.put(path, json={"n": 2}, headers={"if-match": tag}),
        await client.patch(path, json={"n": 2}, headers={**MERGE, "if-match": tag}),
        await client.delete(path, headers={"if-match": tag}),
        await client.get(path, headers={"if-match": tag}),
    ]
    assert [answer.status_code for answer in answers] == [412] * 4, answers[0].text
    assert (await client.get(path, headers={"if-none-match": tag})).json()["n"] == 1


@pytest.mark.parametrize("system", ["postgres", "redis", "mongo"])
async def test_equal_tags_mean_equal_bytes_whichever_replica_answers(
    mediator: Service, system: str
) -> None:
    fields = {name: field_on(system) for name in ("zz", "aaa", "m")}
    database = await mediator.put_schema({"notes": {"fields": fields}})
    configs = list(mediator.configs.values())
    async with (
        service(configs, mediator.catalogue_url) as other,
        client_of(mediator, database) as first,
        client_of(other, database) as second,
    ):
        path = f"notes/{unique()}"
        await first.put(path, json={"m": "1", "zz": "2", "aaa": "3"})
        answers = [await first.get(path), await second.get(path)]
    assert answers[0].headers["etag"] == answers[1].headers["etag"]
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize("class_name", CLASSES)
async def test_paths_lead_as_deep_as_documents_go(
    client: httpx.AsyncClient, class_name: str
) -> None:
    condition: dict[str, Any] = {"eq": [".".join(["d", *"a" * 33]), 1]}
    for depth in range(31):
        other = {"lt": [f"d.b{depth}.c", 2]}
        condition = {("and", "or")[depth % 2]: [condition, other]}
    deepest = await client.post(
        f"{class_name}/query", json={"filter": condition, "allow_scan": True}
    )
    assert deepest.status_code == 200, deepest.text
    for levels in (34, 300, 5_000):
        path = ".".join(["d", *"a" * levels])
        for query in ({"filter": {"eq": [path, 1]}}, {"order": [path]}):
            answer = await client.post(f"{class_name}/query", json={**query, "allow_scan": True})
            assert answer.status_code == 400, answer.text
            assert "leads deeper" in answer.json()["errors"][0]["detail"]
