"""Writes that would make a record too large for its system are refused before the commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mediator.base.errors import ObjectTooLarge
from mediator.model.operations import Create, Put, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import Values
from mediator.stores.mongo import sizes
from tests.process.service import Service, error_of, field_on, unique
from tests.process.transactions.committing.shop import has_intent, run, transaction, values
from tests.process.transactions.open_writes import all_over

BOUNDS = {
    name: getattr(sizes, name) // 16
    for name in ("MAX_VALUES_BYTES", "MAX_DOCUMENT_BYTES", "SERVER_LIMIT_BYTES")
}
"""Scaled down, as the stand-in for MongoDB takes seconds for records of the maximum size."""

HALF = "x" * (BOUNDS["MAX_VALUES_BYTES"] // 2 + 2**12)
"""Two of these are too large, one is not."""

CLASSES = {
    "users": {"fields": {"n": field_on("postgres", "integer", default=0)}},
    "notes": {
        "fields": {
            "text": field_on("mongo"),
            "more": field_on("mongo"),
            "parts": field_on("mongo", "map", items="string"),
        }
    },
    "pairs": {
        "fields": {
            "title": field_on("postgres"),
            "text": field_on("mongo", group="text"),
            "more": field_on("mongo", group="text"),
            "parts": field_on("mongo", "map", items="string", group="text"),
        }
    },
}


def put_half(database: str, class_name: str, key: str) -> Update:
    call = OperatorCall("parts", Operator.PUT, {key: HALF})
    return Update(database, class_name, "x", unique(), operators=(call,))


def oversized_writes(database: str, class_name: str) -> dict[str, WriteOperation]:
    """Return operations that each make an object with a text too large."""
    both: Values = {"text": HALF, "more": HALF}
    return {
        "put": Put(database, class_name, "x", unique(), values=both),
        "create": Create(database, class_name, "y", unique(), values=both),
        "update": Update(database, class_name, "x", unique(), values={"more": HALF}),
        "operator": put_half(database, class_name, "a"),
        "with a key": Update(
            database, class_name, "x", unique(), values={"more": HALF}, fingerprint="f"
        ),
    }


@pytest.fixture(scope="module", autouse=True)
def _low_bounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, size in BOUNDS.items():
            patched.setattr(sizes, name, size)
        yield


@pytest.fixture(scope="module")
async def database(mediator: Service) -> str:
    database = await mediator.put_schema(CLASSES)
    assert mediator.systems_of(database, "notes") == ("mongo",)
    assert set(mediator.systems_of(database, "pairs")) == {"postgres", "mongo"}
    for class_name in ("notes", "pairs"):
        await mediator.create(database, class_name, "x", text=HALF)
    await mediator.create(database, "users", "u", n=0)
    return database


@pytest.mark.parametrize("name", oversized_writes("", ""))
@pytest.mark.parametrize("class_name", ["notes", "pairs"])
async def test_an_oversized_write_is_refused(
    mediator: Service, database: str, class_name: str, name: str
) -> None:
    error = await error_of(mediator, oversized_writes(database, class_name)[name])
    assert isinstance(error, ObjectTooLarge)
    await check_unchanged(mediator, database, class_name)


@pytest.mark.parametrize("name", oversized_writes("", ""))
@pytest.mark.parametrize("class_name", ["notes", "pairs"])
async def test_a_transaction_with_an_oversized_write_is_refused(
    mediator: Service, database: str, class_name: str, name: str
) -> None:
    other = Update(database, "users", "u", unique(), values={"n": 1})
    with pytest.raises(ObjectTooLarge):
        await run(
            mediator, transaction(database, other, oversized_writes(database, class_name)[name])
        )
    assert await values(mediator, database, "users", "u") == {"n": 0}
    await check_unchanged(mediator, database, class_name)


async def test_a_batch_with_an_oversized_write_does_the_others(
    mediator: Service, database: str
) -> None:
    small = [
        Put(database, "pairs", f"b{n}", unique(), values={"title": "a", "text": "b"})
        for n in range(3)
    ]
    large = oversized_writes(database, "pairs")["update"]
    results = await mediator.mediator.data.batch([*small, large])
    assert isinstance(results[-1], ObjectTooLarge)
    for operation in small:
        assert await values(mediator, database, "pairs", operation.id) == operation.values
    await check_unchanged(mediator, database, "pairs")


async def check_unchanged(mediator: Service, database: str, class_name: str) -> None:
    await all_over(mediator)
    assert await values(mediator, database, class_name, "x") == {"text": HALF}
    assert await values(mediator, database, class_name, "y") is None
    for id_ in "xy":
        assert not await has_intent(mediator, database, class_name, id_)


async def test_writes_within_the_bound_succeed(mediator: Service, database: str) -> None:
    for class_name in ("notes", "pairs"):
        await mediator.create(database, class_name, "z", text=HALF)
        small: Any = {"more": "b"}
        operation = Update(database, class_name, "z", unique(), values=small)
        await run(mediator, transaction(database, operation))
        assert await values(mediator, database, class_name, "z") == {"text": HALF, "more": "b"}
