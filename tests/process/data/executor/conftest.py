"""Databases on one system and on several."""

from __future__ import annotations

import pytest

from tests.process.data.executor.executed import ON_ONE, SPREAD
from tests.process.service import Service, field_on


@pytest.fixture(scope="module")
async def spread(mediator: Service) -> str:
    """A database whose class `articles` is placed on three systems."""
    database = await mediator.put_schema({"articles": SPREAD})
    assert set(mediator.systems_of(database, "articles")) == {"redis", "postgres", "mongo"}
    return database


@pytest.fixture(scope="module", params=["redis", "postgres", "mongo"])
async def single(mediator: Service, request: pytest.FixtureRequest) -> str:
    """A database whose class `articles` is placed on one system; each in turn."""
    fields = {
        "title": field_on(request.param),
        "hits": field_on(request.param, "integer"),
    }
    database = await mediator.put_schema({"articles": {"fields": fields}})
    assert mediator.systems_of(database, "articles") == (request.param,)
    return database


@pytest.fixture(scope="module", params=["spread", "single"])
async def either(request: pytest.FixtureRequest, mediator: Service) -> str:
    """A database with `articles` on one system, or on three."""
    classes = SPREAD if request.param == "spread" else ON_ONE
    return await mediator.put_schema({"articles": classes})
