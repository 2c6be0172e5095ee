"""A service in a separate process, with a feed, and clients of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from portolan_client import AsyncAdminClient, AsyncClient
from tests.faults.service import Service
from tests.process.clients.both import KINDS, Kind, open_client
from tests.process.commands.shop import SHOP
from tests.process.service import unique

ACCOUNTS: Final = {
    "unique": [["tenant", "number"]],
    "fields": {
        "email": {"type": "string", "unique": True, "index": True},
        "tenant": {"type": "string", "index": True},
        "number": {"type": "decimal"},
        "visits": {"type": "integer"},
    },
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    param: Kind = request.param
    return param


@pytest.fixture
async def database(started: Service) -> str:
    """A shop whose schema is in force, for one test."""
    name = unique("shop")
    async with AsyncAdminClient(started.admin) as admin:
        await admin.put_schema(name, {"classes": {**SHOP["classes"], "accounts": ACCOUNTS}})
    return name


@pytest.fixture
async def shop(started: Service, database: str, kind: Kind) -> AsyncIterator[AsyncClient]:
    async with open_client(kind, started.data, database) as client:
        yield client
