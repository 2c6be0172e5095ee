"""Fixtures: a shop on three systems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mediator.model.operations import (
    Outcome,
)
from tests.process.service import Service, unique
from tests.process.transactions.committing.shop import CLASSES, SINGLE
from tests.process.transactions.crashable import make_crashable


@pytest.fixture(scope="module")
async def shop(mediator: Service) -> str:
    database = await mediator.put_schema(CLASSES)
    assert [mediator.systems_of(database, name) for name in SINGLE] == [
        ("postgres",),
        ("redis",),
        ("mongo",),
    ]
    return database


@pytest.fixture
async def trio(mediator: Service, shop: str) -> dict[str, Outcome]:
    """One object on each system."""
    return {name: await mediator.create(shop, name, unique(), n=0) for name in SINGLE}


@pytest.fixture
def crashable(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_crashable(mediator.mediator, patched)
        yield
